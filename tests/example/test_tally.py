"""The demo's arithmetic: losses and duplicates are found whatever they hide behind."""

import math

import pytest

from demo.tally import percentile, tally

COMMITTED = {1: 100.0, 2: 200.0, 3: 300.0}


@pytest.mark.parametrize(
    ("effects", "lost", "duplicated"),
    [
        ([(1, 100.1), (2, 200.1), (3, 300.1)], 0, 0),
        ([(1, 100.1), (3, 300.1)], 1, 0),
        ([(1, 100.1), (2, 200.1), (2, 200.9), (3, 300.1)], 0, 1),
        # As many as owed, and wrong all the same: a total alone would not show it.
        ([(1, 100.1), (1, 100.2), (2, 200.1)], 1, 1),
        ([(1, 100.1), (2, 200.1), (3, 300.1), (9, 1.0)], 0, 1),
        ([], 3, 0),
    ],
)
def test_losses_and_duplicates_are_counted_per_order(
    effects: list[tuple[int, float]], lost: int, duplicated: int
) -> None:
    """Every accepted order owes one effect: none is a loss, each further one a duplicate."""
    result = tally(COMMITTED, {"mails": effects}, {"mails": "catcher"})
    assert (result.lost, result.duplicated) == (lost, duplicated)
    assert result.count("mails") == len(effects)


def test_delay_is_from_commit_to_the_first_effect() -> None:
    """A repeat does not lengthen the delay, and a clock read late does not make it negative."""
    effects = [(1, 100.5), (1, 109.0), (2, 199.9), (3, 300.1)]
    result = tally(COMMITTED, {"mails": effects}, {"mails": "catcher"})
    assert result.p50_ms == pytest.approx(100)
    assert result.p95_ms == pytest.approx(500)


def test_percentile_is_a_measured_value() -> None:
    """Nearest rank: the answer is one of the values, and nothing measured is not zero."""
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 95) == 95
    assert percentile([7.0], 95) == 7
    assert math.isnan(percentile([], 50))
