"""Rates from two measurements."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from celery_guard.watch.rates import SMOOTHING, Flow, advance

START = datetime(2026, 1, 1, tzinfo=UTC)


def flow(second: float, *, available: int = 0, gone: int = 0, floor: bool = False) -> Flow:
    at = START + timedelta(seconds=second)
    return Flow(at=at, available=available, gone=gone, floor=floor)


def after(steps: list[Flow]) -> Flow:
    now = steps[0]
    for step in steps[1:]:
        now = advance(now, step)
    return now


def test_steady_work_gives_its_rate() -> None:
    """Ten come and ten go each second: both rates come to ten."""
    found = after([flow(5 * n, available=7, gone=50 * n) for n in range(60)])
    assert found.arrivals == pytest.approx(10, rel=0.01)
    assert found.completions == pytest.approx(10, rel=0.01)


def test_a_growing_backlog_is_arrivals_over_completions() -> None:
    """What is there more than before has arrived."""
    found = after([flow(5 * n, available=20 * n, gone=10 * n) for n in range(60)])
    assert found.arrivals == pytest.approx(6, rel=0.01)
    assert found.completions == pytest.approx(2, rel=0.01)


def test_a_drained_backlog_is_no_arrival() -> None:
    """Work on what was there before is completions alone."""
    found = after([flow(5 * n, available=1000 - 15 * n, gone=15 * n) for n in range(60)])
    assert found.arrivals == pytest.approx(0, abs=0.01)
    assert found.completions == pytest.approx(3, rel=0.01)


def test_completions_that_are_told_late_even_out() -> None:
    """A lane that empties one step before its completions are told shows no lasting arrivals."""
    found = after([flow(0, available=100), flow(5), flow(10, gone=100), flow(600, gone=100)])
    assert found.arrivals == pytest.approx(0, abs=0.01)


def test_a_count_at_its_bound_is_no_difference() -> None:
    """Beyond the bound nobody knows how many came; what went is still known."""
    steps = [flow(5 * n, available=100, gone=5 * n, floor=True) for n in range(60)]
    found = after([flow(-5, available=3), *steps])
    assert found.arrivals == pytest.approx(1, rel=0.01)


def test_the_average_forgets_by_time_not_by_steps() -> None:
    """One long step weighs as much as many short ones."""
    base = flow(0, gone=0)
    long = advance(base, flow(SMOOTHING, gone=300))
    short = after([base, *(flow(SMOOTHING * n / 30, gone=10 * n) for n in range(1, 31))])
    assert long.completions == pytest.approx(short.completions)


def test_a_clock_that_stands_or_jumps_back_changes_nothing() -> None:
    """No time passed: the rates stay."""
    before = after([flow(5 * n, gone=50 * n) for n in range(20)])
    found = advance(before, flow(0, gone=5000))
    assert found.completions == before.completions


def test_a_counter_that_went_back_is_nothing_gone() -> None:
    """A restored database makes no negative rate."""
    assert advance(flow(0, gone=100), flow(5, gone=3)).completions == 0
