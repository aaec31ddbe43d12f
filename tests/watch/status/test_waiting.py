"""The predicted wait is what is ahead of a job over the rate at which jobs end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from celery_guard.jobs.states import State
from celery_guard.models import Job
from celery_guard.watch.lanes import LaneView
from celery_guard.watch.status.waiting import Place, ask_after, predict, predicted_wait

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def lane(**changes: object) -> LaneView:
    """A lane of 4 busy slots that ends 10 jobs a second, 101 waiting, the oldest for 20 s."""
    values: dict[str, object] = {
        **dict.fromkeys(("scheduled", "sent", "retrying", "pending", "dead_letters"), 0),
        **dict.fromkeys(("held", "workers"), 0),
        **dict.fromkeys(("service_rate", "desired_workers", "desired_uncapped")),
        "limited_by": "",
        **dict.fromkeys(("stuck_for", "snapshot_age"), 0.0),
        "name": "high",
        "queue": "high",
        "objective": 10.0,
        "capped": False,
        "taken_at": NOW,
        "ready": 101,
        "running": 4,
        "slots": 4,
        "age": 20.0,
        "arrivals": 10.0,
        "completions": 10.0,
        "completions_total": 0,
    }
    return LaneView(**{**values, **changes})  # type: ignore[arg-type]


def place(due_in: float = 0.0, waited: float = 0.0) -> Place:
    return Place(due_in=due_in, waited=waited)


def test_the_newest_waits_for_all_others() -> None:
    """Little's law: 100 ahead at 10 a second are 10 seconds."""
    assert predict(place(), lane()) == pytest.approx(10)


def test_the_longer_a_job_has_waited_the_less_is_ahead_of_it() -> None:
    """Down to nothing for the oldest."""
    waits = [predict(place(waited=waited), lane()) for waited in (0, 5, 10, 20, 50)]
    assert waits == pytest.approx([10, 7.5, 5, 0, 0])


def test_a_free_slot_is_no_wait() -> None:
    """Also where nothing has ended for a while."""
    assert predict(place(), lane(ready=1, running=3, completions=0.0)) == 0


def test_a_lane_that_stands_still_predicts_nothing() -> None:
    """No worker, or none that gets anything done: any number would be a lie."""
    assert predict(place(), lane(completions=0.0)) is None
    assert predict(place(), lane(slots=0, running=0, completions=0.0)) is None


def test_what_is_due_later_waits_for_what_is_left_by_then() -> None:
    """A line that shrinks is gone by then; one that grows is longer."""
    assert predict(place(due_in=60), lane(arrivals=0.0)) == 60
    assert predict(place(due_in=60), lane()) == pytest.approx(70.1)
    assert predict(place(due_in=60), lane(arrivals=20.0)) == pytest.approx(130.1)


def job(**changes: object) -> Job:
    return Job(**{"state": State.WAITING, "due_at": NOW, "first_due_at": NOW, **changes})


def test_only_what_waits_is_predicted_from_what_is_fresh() -> None:
    """A job that runs has no wait; a stale or missing snapshot tells none."""
    assert predicted_wait(job(), lane(), NOW) == pytest.approx(10)
    assert predicted_wait(job(state=State.RUNNING), lane(), NOW) is None
    assert predicted_wait(job(), lane(snapshot_age=999.0), NOW) is None
    assert predicted_wait(job(), None, NOW) is None


def test_asking_is_advised_between_a_second_and_a_minute() -> None:
    """Never at once, never so rarely that a person would think it broken."""
    assert [ask_after(job(), wait, NOW) for wait in (0.0, 7.2, 9999.0, None)] == [1, 8, 60, 5]


def test_a_long_run_is_asked_for_less_often() -> None:
    """A tenth of the time it has run so far; an ended job never."""
    for ran, after in ((0, 1), (30, 3), (10_000, 60)):
        started = NOW - timedelta(seconds=ran)
        assert ask_after(job(state=State.RUNNING, started_at=started), None, NOW) == after
    assert ask_after(job(state=State.SUCCEEDED), None, NOW) is None
