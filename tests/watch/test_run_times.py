"""What the turns of tenants take for the cost of a task."""

import json

import pytest
from django.db.models import F

from celery_guard.events import emit
from celery_guard.models import Series
from celery_guard.relay.costs import UNKNOWN, Costs
from celery_guard.watch.counters import series_tally
from celery_guard.watch.run_times import run_times
from tests.relay.ledger import measured

pytestmark = pytest.mark.django_db(transaction=True)


def _ended(task: str, seconds: float, lane: str = "high", outcome: str = "succeeded") -> None:
    facts = {"job": 1, "task": task, "lane": lane, "using": "default"}
    emit("run.ended", **facts, outcome=outcome, error=None, seconds=seconds)


def test_run_times_are_those_of_the_histogram() -> None:
    """All lanes together; good runs alone, and no other metric."""
    _ended("a", 1.0)
    _ended("a", 3.0, lane="low")
    _ended("a", 99.0, outcome="failed")
    _ended("b", 0.5)
    series_tally.flush()
    Series.objects.create(name="job_queue_time_seconds:sum", labels=json.dumps(["high"]), value=5)
    assert run_times("default") == {"a": (4.0, 2), "b": (0.5, 1)}
    costs = Costs("default")
    assert (costs.of("a"), costs.usual) == (UNKNOWN, UNKNOWN)
    costs.refresh()
    assert (costs.of("a"), costs.of("b"), costs.of("new")) == (2.0, 0.5, 1.5)


def _known(costs: Costs) -> tuple[float, float]:
    costs._until = 0.0
    costs.refresh()
    return costs.of("a"), costs.usual


def _more(task: str, seconds: int, runs: int) -> None:
    labels = json.dumps(["high", task])
    for name, value in (("30", runs), ("sum", seconds * 1_000_000)):
        row = Series.objects.filter(name=f"job_duration_seconds:{name}", labels=labels)
        row.update(value=F("value") + value)


def test_the_latest_runs_count_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that became slow is not taken for what a year of quick runs have made of it."""
    measured("a", 1_000_000, 1_000_000)
    costs = Costs("default")
    assert _known(costs) == (1.0, 1.0)
    _more("a", 200, 20)
    assert all(cost > 5 for cost in _known(costs))
    monkeypatch.setattr("celery_guard.relay.costs.HALF", 1e-6)
    _more("a", 40, 20)
    assert _known(costs) == pytest.approx((2.0, 2.0))
    assert _known(costs) == pytest.approx((2.0, 2.0)), "what rests does not fade away"


def test_counts_that_begin_anew_are_a_beginning() -> None:
    """Somebody has emptied the table: no mean may come out below zero."""
    measured("a", 1000, 10)
    costs = Costs("default")
    assert _known(costs)[0] == 100
    Series.objects.all().delete()
    measured("a", 4, 2)
    assert _known(costs) == (2.0, 2.0)
