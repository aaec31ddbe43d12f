"""The rows, their bars, and when a bar is met."""

import dataclasses
import json

import pytest

from benchmarks import printing
from benchmarks.rows import MEASURES
from benchmarks.spread import Spread
from benchmarks.table import ROWS, Bar, Outcome, Row, rows

# Row -> the bounds promised for it, in order; None for what is only reported.
PROMISED = {
    1: [1.3, 1.0, 0.5],
    2: [1.6, 3.3],
    3: [1.5, 8.0, 8.0],
    4: [15.0],
    5: [4.5],
    6: [0.8, 0.9, 72.0, 3.0, 1.0],
    7: [1.3, 1.5],
    8: [2.2, 0.8],
    9: [0.5, 0.72, 1.8],
    10: [1.2, 1.5, 2.5, None],
    11: [0.85, 0.85, 0.85],
    12: [*[1.3] * 11, 200.0, 200.0, 10.0],
    13: [None, None, None, 2.0],
    14: [0.0, 0.0, *[1.25] * 3],
}


def seen(low: float, median: float, high: float) -> Spread:
    return Spread(low=low, median=median, high=high, count=5)


@pytest.mark.bar
def test_the_table_holds_every_row_with_its_bars() -> None:
    """One command prints all fourteen rows, each beside the bar that was promised for it."""
    assert {number: [bar.bound for bar in row.bars] for number, row in ROWS.items()} == PROMISED


def test_every_row_can_be_measured() -> None:
    """A row that nobody measures would promise nothing."""
    assert set(MEASURES) == set(ROWS)


def test_a_bar_to_reach_is_met_by_the_lower_quartile() -> None:
    """A median above the bar is not enough."""
    bar = Bar(name="rate", at_least=1.3)
    assert bar.met(seen(1.3, 1.4, 1.5)) is True
    assert bar.met(seen(1.29, 1.4, 1.5)) is False


def test_a_bar_not_to_pass_is_met_by_the_upper_quartile() -> None:
    """For a cost the upper quartile is the unfavourable one."""
    bar = Bar(name="latency", at_most=1.3)
    assert bar.met(seen(1.0, 1.1, 1.3)) is True
    assert bar.met(seen(1.0, 1.1, 1.31)) is False


def test_a_reported_figure_is_neither_met_nor_missed() -> None:
    """Without a bound there is nothing to meet."""
    assert Bar(name="bytes").met(seen(1, 2, 3)) is None


ROW = Row(
    number=99,
    scenario="two parts",
    bars=(Bar(name="a", at_least=2.0), Bar(name="b", at_most=1.0), Bar(name="c")),
)


def test_a_row_is_met_when_all_its_bars_are() -> None:
    """One missed bar misses the row."""
    good = {"a": seen(2, 2, 2), "b": seen(1, 1, 1), "c": seen(9, 9, 9)}
    assert Outcome(row=ROW, seen=good).met is True
    assert Outcome(row=ROW, seen=good | {"b": seen(1, 1, 1.1)}).met is False


def test_a_bar_that_was_not_measured_is_not_met() -> None:
    """A contender that fails can't pass by its absence."""
    assert Outcome(row=ROW, seen={"a": seen(2, 2, 2)}).met is False


@pytest.mark.bar
def test_a_row_is_one_json_object_about_the_part_that_decides() -> None:
    """`row, value, bar, met` are those of the part furthest below its bar."""
    found = Outcome(row=ROW, seen={"a": seen(1.8, 1.9, 2.2), "b": seen(0.5, 0.6, 0.7)})
    told = json.loads(json.dumps(printing.as_object(found)))
    assert (told["row"], told["value"], told["bar"], told["met"]) == (99, 1.9, 2.0, False)
    assert [(part["name"], part["met"]) for part in told["parts"]] == [
        ("a", False),
        ("b", True),
        ("c", None),
    ]


def test_a_row_that_is_not_measured_says_so_in_one_line() -> None:
    """What can't be measured on a machine is neither met nor missed."""
    row = dataclasses.replace(ROWS[14], absent="not measured: no server was found")
    outcome = Outcome(row=row, seen={})
    assert outcome.met is None
    assert printing.as_object(outcome)["note"] == "not measured: no server was found"
    assert len(printing.outcome(outcome).strip().splitlines()) == 1


def test_an_unknown_row_is_refused() -> None:
    """A typing error must not measure something else."""
    with pytest.raises(KeyError):
        rows(15)
