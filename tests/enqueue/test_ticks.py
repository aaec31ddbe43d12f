"""Two beats run a tick once: how a tick is named, and what its name does."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery.beat import Scheduler
from celery.schedules import crontab, schedule
from celery.signals import beat_init
from hypothesis import given
from hypothesis import strategies as st

from celery_guard.enqueue.ticks import due_at
from celery_guard.jobs.states import State
from tests.enqueue.rows import jobs, keys
from tests.enqueue.tasks import app, keyed, unkeyed

HOUR = datetime(2030, 5, 1, 10, tzinfo=UTC)


@dataclasses.dataclass
class Entry:
    """What a due time is worked out from."""

    schedule: Any
    last_run_at: datetime


def test_a_crontab_tick_is_on_its_minute() -> None:
    """Wherever in the period before each beat ran last."""
    every_hour = crontab(minute=0, app=app())
    last = (HOUR, HOUR + timedelta(seconds=3), HOUR + timedelta(minutes=59))
    assert {due_at(Entry(every_hour, one)) for one in last} == {HOUR + timedelta(hours=1)}


@given(
    every=st.timedeltas(timedelta(milliseconds=1), timedelta(days=9)),
    last=st.integers(0, 10**15).map(lambda after: HOUR + timedelta(microseconds=after)),
    late=st.timedeltas(timedelta(0), timedelta(days=9)),
)
def test_no_two_ticks_of_one_beat_share_a_name(
    every: timedelta, last: datetime, late: timedelta
) -> None:
    """The next run comes an interval or more after this one, however late this one was."""
    interval = schedule(every, app=app())
    first, second = (
        due_at(Entry(interval, run)) for run in (last, last + interval.run_every + late)
    )
    assert first is not None
    assert second is not None
    assert first < second


def test_interval_ticks_of_two_beats_meet() -> None:
    """One name for each interval, whatever their phases."""
    interval = schedule(timedelta(minutes=10), app=app())
    dues = {due_at(Entry(interval, HOUR + timedelta(minutes=phase))) for phase in (1, 4, 9)}
    assert dues == {HOUR + timedelta(minutes=10)}


class Unknowing(crontab):
    """A schedule of a site's own that knows no time that is left."""

    remaining_delta = property()  # type: ignore[assignment]

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        """Not known."""
        raise NotImplementedError


def test_a_schedule_that_knows_no_due_time_names_no_tick() -> None:
    """Its ticks are sent all the same."""
    assert due_at(Entry(Unknowing(app=app()), HOUR)) is None


class Service:
    """What the signal of a beat's start names as its sender."""

    def __init__(self, entries: dict[str, Any]) -> None:
        self.scheduler = Scheduler(app(), lazy=True)
        self.scheduler.merge_inplace(entries)


def beat(task: Any, *args: Any, due: datetime, **entry: Any) -> Any:
    """A beat that starts, and its one entry, which is due at `due`."""
    every = timedelta(minutes=10)
    entries = {"nightly": {"task": task.name, "schedule": every, "args": args, **entry}}
    service = Service(entries)
    beat_init.send(sender=service)
    named = service.scheduler.schedule["nightly"]
    named.last_run_at = due - every
    return service.scheduler, named


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("advance", [True, False])
def test_two_beats_make_one_job_of_a_tick(advance: bool) -> None:
    """Though their arguments differ: a value made at the tick names no other tick."""
    for value in (1, 2):
        scheduler, entry = beat(unkeyed, value, due=HOUR, options={"queue": None})
        scheduler.apply_async(entry, advance=advance)
    assert keys() == [f"tick:nightly@{HOUR.isoformat()}"]
    scheduler, entry = beat(unkeyed, 1, due=HOUR + timedelta(minutes=10))
    scheduler.apply_async(entry, advance=advance)
    assert len(jobs()) == 2


@pytest.mark.django_db(transaction=True)
def test_a_tick_that_failed_is_not_run_again_by_the_other_beat() -> None:
    """It repeats the tick, it does not ask anew."""
    scheduler, entry = beat(unkeyed, due=HOUR)
    scheduler.apply_async(entry)
    (job,) = jobs()
    type(job).objects.update(state=State.FAILED, due_at=None, sent_at=None)
    scheduler, entry = beat(unkeyed, due=HOUR)
    scheduler.apply_async(entry)
    assert [job.state for job in jobs()] == [State.FAILED]


@pytest.mark.django_db(transaction=True)
def test_a_tasks_own_key_goes_before() -> None:
    """Whoever else asks for the same report gets the same job."""
    scheduler, entry = beat(keyed, "may", due=HOUR)
    scheduler.apply_async(entry)
    keyed.delay("may")
    assert keys() == ["keyed:may"]


@pytest.mark.django_db(transaction=True)
def test_a_tick_named_by_the_schedule_itself_stays() -> None:
    """For schedulers that run no beat: the header is all there is to it."""
    headers = {"guard_tick": "cron@today"}
    scheduler, entry = beat(unkeyed, due=HOUR, options={"headers": headers})
    scheduler.apply_async(entry)
    unkeyed.apply_async(headers=headers)
    unkeyed.delay()
    assert keys() == ["tick:cron@today", None]
