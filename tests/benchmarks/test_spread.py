"""The arithmetic of ratios and quartiles."""

import pytest

from benchmarks.spread import added_ratios, medians, ratios, spread, values
from benchmarks.turns import in_turn


def test_ratios_are_taken_within_a_round() -> None:
    """A machine that halves its speed between two rounds changes no ratio."""
    above = [{"tx": 200.0}, {"tx": 100.0}]
    below = [{"tx": 100.0}, {"tx": 50.0}]
    assert ratios(above, below, "tx") == [2.0, 2.0]


def test_a_failed_round_counts_for_nobody() -> None:
    """A round in which either side failed gives no ratio, and shifts no other round."""
    above = [{"tx": 2.0}, None, {"tx": 6.0}]
    below = [{"tx": 1.0}, {"tx": 9.0}, {"tx": 3.0}]
    assert ratios(above, below, "tx") == [2.0, 2.0]


def test_rounds_that_do_not_match_are_refused() -> None:
    """Results of unequal length come from different runs and can't be paired."""
    with pytest.raises(ValueError, match="shorter"):
        ratios([{"tx": 1.0}], [], "tx")


def test_added_cost_is_compared_above_the_floor() -> None:
    """What a job adds is its cost less the same transaction without a job."""
    one, other, floor = [{"cpu": 0.4}], [{"cpu": 0.6}], [{"cpu": 0.2}]
    assert added_ratios(one, other, floor, "cpu") == pytest.approx([0.5])


def test_a_round_in_which_nothing_was_added_is_left_out() -> None:
    """Noise that makes the other side cheaper than the floor gives no ratio."""
    assert added_ratios([{"cpu": 0.4}], [{"cpu": 0.1}], [{"cpu": 0.2}], "cpu") == []


@pytest.mark.parametrize(
    ("seen", "low", "median", "high"),
    [
        ([3.0], 3.0, 3.0, 3.0),
        ([1.0, 9.0, 2.0], 1.0, 2.0, 9.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 2.0, 3.0, 4.0),
        ([4.0, 1.0, 3.0, 2.0], 1.75, 2.5, 3.25),
    ],
)
def test_spread_is_the_quartiles_or_the_range(
    seen: list[float], low: float, median: float, high: float
) -> None:
    """Four values and more have quartiles; with fewer the range stands for them."""
    found = spread(seen)
    assert (found.low, found.median, found.high) == pytest.approx((low, median, high))
    assert found.count == len(seen)


def test_no_values_have_no_spread() -> None:
    """A bar that could not be measured must be said to be so, not to be zero."""
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_values_and_medians_skip_failed_rounds() -> None:
    """A failed round leaves the other rounds' figures as they are."""
    rounds = [{"a": 1.0}, None, {"a": 3.0, "b": 5.0}]
    assert values(rounds, "a") == [1.0, 3.0]
    assert medians(rounds) == {"a": 2.0, "b": 5.0}


def test_everybody_begins_in_turn() -> None:
    """Whoever comes first in a round meets the coldest machine, so that turns too."""
    turns = list(in_turn(["a", "b", "c"], 2))
    assert turns == [(0, "a"), (0, "b"), (0, "c"), (1, "b"), (1, "c"), (1, "a")]
