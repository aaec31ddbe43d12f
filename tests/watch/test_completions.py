"""Which ends of tasks are counted as completions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from celery_guard.conf import guard_settings
from celery_guard.watch import completions
from celery_guard.watch.counters import COMPLETIONS, Tally
from tests.project.shop import tasks


@pytest.fixture
def tally(monkeypatch: pytest.MonkeyPatch) -> Tally:
    """Counts of this test alone, never written."""
    own = Tally()
    monkeypatch.setattr(completions, "tally", own)
    return own


def end(task: object, state: str, *, queue: str = "", eager: bool = False) -> None:
    request = SimpleNamespace(is_eager=eager, delivery_info={"routing_key": queue})
    guard = getattr(task, "guard", None)
    ended = SimpleNamespace(request=request, **({"guard": guard} if guard else {}))
    completions.count_completion(task=ended, state=state)


@pytest.mark.parametrize("state", ["SUCCESS", "FAILURE"])
def test_an_end_counts_in_the_lane_of_its_queue(tally: Tally, state: str) -> None:
    """Whatever lane the task declares, the message came through this one."""
    end(tasks.issue_invoice, state, queue=guard_settings().lane("low").queue)
    assert tally._counts == {("default", COMPLETIONS, "low"): 1}


def test_without_a_queue_the_declared_lane_counts(tally: Tally) -> None:
    """A transport that tells no routing key."""
    end(tasks.issue_invoice, "SUCCESS")
    assert tally._counts == {("default", COMPLETIONS, "high"): 1}


@pytest.mark.parametrize("state", ["RETRY", "IGNORED", "REVOKED", None])
def test_an_attempt_that_is_no_end_does_not_count(tally: Tally, state: str) -> None:
    """The job is still owed."""
    end(tasks.issue_invoice, state)
    assert not tally._counts


def test_unguarded_and_eager_tasks_do_not_count(tally: Tally) -> None:
    """They have no job that could have left a lane."""
    end(tasks.plain, "SUCCESS")
    end(tasks.issue_invoice, "SUCCESS", eager=True)
    assert not tally._counts
