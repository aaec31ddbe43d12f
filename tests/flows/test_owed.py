"""Whoever waits is told of every end, however it came about and whoever died of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import chord
from celery.exceptions import TimeoutError as StillWaiting
from redis import Redis

from celery_guard.faults import arm
from celery_guard.jobs import adding, cancelling, claiming, rescuing, standing
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.states import Reason
from celery_guard.models import Duty, Job
from tests.flows.staff import hire, wait_for_state
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop import tasks
from tests.project.shop.models import Mark
from tests.project.shop.witness import traces
from tests.relay.ledger import queue_of
from tests.run.marks import on_database
from tests.run.tasks import collect, hangs, told_of_error

pytestmark = [*on_database, pytest.mark.mariadb]


def all_told() -> bool:
    """Nobody waits any more for a job that has ended."""
    owed = Job.objects.filter(awaited=True, answered_at=None, finished_at__isnull=False)
    return not owed.exists()


def poison(job: Job) -> None:
    """Its worker is killed for the last time, and the rescue comes from elsewhere."""
    Job.objects.filter(pk=job.pk).update(sent_at=DatabaseNow())
    owner = job.public_id
    assert claiming.claim("default", NamedJob(job.pk), owner=owner, lease=-1.0)
    (lost,) = rescuing.rescue("default", job.lane, limit=1)
    assert lost.state == "dead"


def cancel(job: Job) -> None:
    """By the status resource."""
    assert cancelling.ask("default", job.public_id) == "cancelled"


def cancel_in_admin(job: Job) -> None:
    """By the admin's action."""
    assert adding.cancel("default", job.pk) == 1


def expire(job: Job) -> None:
    """By a relay that died before its message was out."""
    Job.objects.filter(pk=job.pk).update(expires_at=in_seconds(-1))
    assert standing.expire("default", NamedJob(job.pk), "")


def park(job: Job) -> None:
    """By a worker of another release, that does not know the task."""
    error = '{"type": "NotRegistered", "message": "x"}'
    assert standing.park("default", NamedJob(job.pk), reason=Reason.UNKNOWN_TASK, error=error)


ENDS: dict[str, Callable[[Job], None]] = {
    "dead": poison,
    "cancelled": cancel,
    "cancelled in the admin": cancel_in_admin,
    "expired": expire,
    "failed": park,
}


def waiting_member() -> tuple[Any, Job]:
    """A chord of which one member waits for a long time, and somebody for its error."""
    late = tasks.mark.s("late", "v").set(countdown=600, link_error=told_of_error.s())
    result = chord([late, tasks.mark.s("early", "e")], collect.s()).delay()
    other = Job.objects.filter(key="mark:early", answered_at__isnull=False)
    wait_for(other.exists, what="the other member")
    return result, Job.objects.get(key="mark:late")


@pytest.mark.bar
@pytest.mark.parametrize("end", ENDS)
def test_a_chord_is_told_of_ends_that_came_without_a_worker(
    end: str, processes: Processes, scratch: Path
) -> None:
    """Dead by rescue, cancelled, expired, parked: the chord and the errback hear of it, once."""
    hire(processes)
    result, member = waiting_member()
    ENDS[end](member)
    wait_for(all_told, what="everybody to be told")
    with pytest.raises(Exception) as told:  # noqa: PT011 - Celery makes the class up
        result.get(timeout=30)
    assert not isinstance(told.value, StillWaiting)
    member.refresh_from_db()
    assert member.state == end.split()[0]
    wait_for(lambda: traces("errback"), what="the errback")
    assert len(traces("errback")) == 1
    assert not traces("collect")


@pytest.mark.bar
def test_a_chord_ends_right_when_a_cancelled_member_is_replayed(
    processes: Processes, scratch: Path
) -> None:
    """Before anybody was told of the cancel: then it has not happened, as far as they know."""
    hire(processes)
    result, member = waiting_member()
    cancel(member)
    assert adding.replay("default", member.pk) == 1
    assert result.get(timeout=30) == ["e", "v"]
    wait_for(all_told, what="everybody to be told")
    assert traces("collect") == ["e,v"]


@pytest.mark.bar
@pytest.mark.parametrize("point", ["run.committed", "outbox.writing", "run.answering"])
def test_a_chord_outlives_worker_and_broker(
    point: str, processes: Processes, scratch: Path, redis_client: Redis
) -> None:
    """The whole worker is killed between COMMIT and the answer, the broker wiped: told, run once."""
    result = lose_worker_and_broker(point, processes, scratch, redis_client)
    hire(processes)
    assert result.get(timeout=30) == ["e", "v"]
    wait_for(all_told, what="everybody to be told")
    assert set(Job.objects.values_list("state", flat=True)) == {"succeeded"}
    assert (Mark.objects.count(), traces("collect")) == (2, ["e,v"])


@pytest.mark.bar
def test_a_chord_hangs_without_the_sweep(
    processes: Processes, scratch: Path, redis_client: Redis
) -> None:
    """The counter-proof: many sweeps that look for no untold ends tell nobody."""
    lose_worker_and_broker("run.committed", processes, scratch, redis_client)
    hire(processes, env={"GUARD_TEST_WITHOUT": "owed"})
    for _ in range(12):
        swept = swept_at()
        wait_for(lambda before=swept: swept_at() != before, what="a sweep")
    assert not all_told()
    assert not traces("collect")


def swept_at() -> object:
    """When the last sweep ended."""
    return Duty.objects.filter(name="sweep").values_list("done_at", flat=True).first()


def lose_worker_and_broker(point: str, processes: Processes, scratch: Path, client: Redis) -> Any:
    """A chord whose last member's worker died at ``point``, with all that the broker held."""
    first = hire(processes, env={"GUARD_FAULT": f"in:{scratch}"}, pool="solo")
    result, member = waiting_member()
    arm(scratch, point)
    Job.objects.filter(pk=member.pk).update(due_at=DatabaseNow())
    wait_for(lambda: list(scratch.glob("*.died")), what="its death")
    first.kill()
    wipe(client)
    return result


@pytest.mark.bar
def test_the_last_death_of_a_child_is_told_at_once(processes: Processes, scratch: Path) -> None:
    """The worker outlived its child, and has the message in hand: no sweep is waited for."""
    hire(processes, env={"GUARD_TEST_WITHOUT": "owed"})
    handle = tasks.dies.s("a", 99).on_error(told_of_error.s()).apply_async()
    job = wait_for_state(handle, "dead", timeout=60)
    wait_for(lambda: traces("errback"), what="the errback")
    wait_for(all_told, what="everybody to be told")
    assert Job.objects.get(pk=job.pk).answers == -1
    assert len(traces("errback")) == 1


@pytest.mark.bar
def test_what_the_main_process_tells_is_told_once(processes: Processes, scratch: Path) -> None:
    """A hard limit's failure is stored by the worker's main process; no copy tells of it again."""
    hire(processes)
    handle = hangs.s("a").on_error(told_of_error.s()).apply_async()
    wait_for_state(handle, "failed")
    wait_for(all_told, what="everybody to be told")
    assert Job.objects.get().answers == 0
    assert len(traces("errback")) == 1


def wipe(client: Redis) -> None:
    """Take all that the broker knows; the result backend, in the same Redis, keeps the chord."""
    lanes = [queue_of(lane) for lane in ("high", "medium", "low")]
    client.delete(*lanes, "unacked", "unacked_index", "unacked_mutex")
