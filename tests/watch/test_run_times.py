"""What the turns of tenants take for the cost of a task."""

import json

import pytest

from celery_guard.events import emit
from celery_guard.models import Series
from celery_guard.relay.costs import UNKNOWN, Costs
from celery_guard.watch.counters import series_tally
from celery_guard.watch.run_times import run_times

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
