"""The scaling advice on whole loads, with the textbook's formula beside it."""

from __future__ import annotations

import statistics

import pytest

from benchmarks.scaling import POLICIES, TRACES, long_jobs, outcomes, policy

OURS = POLICIES["ours"]
TEXTBOOK = POLICIES["textbook, burst step 5"]


def late(trace: str, name: str) -> float:
    """Per cent of the time over the objective, the mean of the seeds."""
    return statistics.mean(outcome.late for outcome in outcomes(trace, POLICIES[name]))


@pytest.mark.bar
@pytest.mark.parametrize("trace", ["noisy", "diurnal"])
def test_usual_loads_are_late_at_most_one_per_cent_of_the_time(trace: str) -> None:
    """And the direction changes at most ten times in four hours."""
    for outcome in outcomes(trace, OURS):
        assert outcome.late <= 1
        assert outcome.reversals <= 10


@pytest.mark.bar
@pytest.mark.parametrize("trace", TRACES)
def test_no_trace_breaks_a_ceiling(trace: str) -> None:
    """Neither the workers wanted at most nor the database's connections."""
    for name, most in (("ours", policy().most), ("ours, database for 30 workers", 30)):
        assert all(outcome.most <= most for outcome in outcomes(trace, POLICIES[name]))


def test_a_burst_is_over_soon_and_paid_for_no_longer_than_needed() -> None:
    """Seven times the load for five minutes; four hours later the site is as small as before."""
    for outcome in outcomes("burst", OURS):
        assert outcome.late <= 5
        assert outcome.reversals <= 10
        assert outcome.last <= 30


def test_an_outage_is_caught_up_with() -> None:
    """Nothing ends for ten minutes: no stampede of workers stays behind."""
    for outcome in outcomes("outage", OURS):
        assert outcome.late <= 6
        assert outcome.last <= 30


def test_jobs_of_an_hour_keep_their_workers_until_they_end() -> None:
    """Thirty-two run, none comes, none ends: then all end, and the window later so few as ever."""
    advised = long_jobs(32, ends=3600)
    assert {workers for second, workers in advised.items() if second < 3600} == {32}
    assert advised[3600 + 240] == 32
    assert advised[7200] == policy().least
    assert sorted(advised.values(), reverse=True) == list(advised.values()), "no way back up"


def test_the_textbook_never_catches_up() -> None:
    """Arrivals over jobs per worker is full load: the queue that noise makes stays."""
    for trace in ("noisy", "diurnal"):
        assert late(trace, "textbook") > 50
        assert late(trace, "textbook, burst step 5") > 5 * max(1.0, late(trace, "ours"))
    assert min(outcome.reversals for outcome in outcomes("noisy", TEXTBOOK)) > 100
