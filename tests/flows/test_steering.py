"""An operator holds jobs back while real workers and relays are busy."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from celery_guard.enqueue.many import enqueue_many
from celery_guard.enqueue.steering import reading
from celery_guard.enqueue.steering.models import Switch
from celery_guard.enqueue.steering.turning import turn_off, turn_on
from celery_guard.models import Attempt, Job
from tests.flows.staff import hire
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop.models import Mark
from tests.project.shop.tasks import mark_for, mark_low
from tests.run.marks import on_database

pytestmark = [*on_database, pytest.mark.mariadb]

JOBS = 250
SOON = timedelta(seconds=2)
"""In which a switch takes hold everywhere: each process reads once a second, and bodies run on."""


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    yield
    reading.forget()


def pause(seconds: float = 600, **scope: str) -> Switch:
    """A hold, from now."""
    return turn_on("default", action="hold", reason="a test", author="me", seconds=seconds, **scope)


def all_ran_once(count: int) -> None:
    """Every job succeeded, each body was committed once, and nothing was used up."""
    wait_for(
        lambda: Job.objects.filter(state="succeeded").count() == count,
        timeout=90,
        what=f"{count} jobs to succeed",
    )
    assert Mark.objects.count() == count
    assert Mark.objects.values("name").distinct().count() == count
    assert set(Job.objects.values_list("failures", "lost", "starts")) == {(0, 0, 1)}
    assert not Attempt.objects.exists()


SCOPES = {
    "lane": {"lane": "high"},
    "tenant": {"tenant": "a"},
    "task": {"task": mark_for.name},
    "two words": {"lane": "high", "tenant": "a"},
}


@pytest.mark.bar
@pytest.mark.timeout(240)
@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_a_pause_stops_starts_and_a_resume_runs_all(
    scope: dict[str, str], processes: Processes
) -> None:
    """Held under load: nothing of it starts soon after, others run on; resumed, each runs once."""
    hire(processes, concurrency=2)
    hire(processes, concurrency=1)
    enqueue_many([mark_for.s("a", f"a{n}") for n in range(JOBS)])
    held = Job.objects.filter(tenant="a")
    wait_for(lambda: held.filter(state="succeeded").count() > 10, timeout=60, what="a load")
    switch = pause(**scope)
    enqueue_many([mark_low.s(f"free{n}") for n in range(20)])
    free = Job.objects.filter(lane="low")
    wait_for(lambda: free.filter(state="succeeded").count() == 20, timeout=60, what="the others")
    # Nothing is sent any more, and what had been sent has come back.
    wait_for(
        lambda: not held.filter(sent_at__isnull=False, state__in=["waiting", "running"]).exists(),
        timeout=30,
        what="the held jobs to be in the database again",
    )
    assert held.filter(state="waiting").count() > 0, "they were not held under load"
    late = held.filter(started_at__gt=switch.created_at + SOON)
    assert not late.exists()
    assert turn_off("default", [switch.pk], by="me") == [switch.pk]
    all_ran_once(JOBS + 20)


@pytest.mark.bar
@pytest.mark.timeout(120)
def test_a_pause_ends_by_itself(processes: Processes) -> None:
    """Nobody ends it: at its expiry, by the database's clock, what it held runs."""
    switch = pause(4, tenant="a")
    enqueue_many([mark_for.s("a", f"a{n}") for n in range(20)])
    hire(processes, concurrency=2)
    enqueue_many([mark_low.s(f"free{n}") for n in range(5)])
    all_ran_once(25)
    assert not Job.objects.filter(tenant="a", started_at__lt=switch.expires_at).exists()
    switch.refresh_from_db()
    assert switch.ended_at is None, "it is over, not ended"


@pytest.mark.timeout(120)
def test_two_switches_at_once(processes: Processes) -> None:
    """A job that two switches hold starts when both are over, whichever ends first."""
    enqueue_many([mark_for.s("a", f"a{n}") for n in range(20)])
    enqueue_many([mark_for.s("b", f"b{n}") for n in range(20)])
    long, short = pause(600, task=mark_for.name), pause(300, tenant="a")
    hire(processes, concurrency=2)
    aside = Job.objects.filter(reason="paused", due_at=long.expires_at)
    wait_for(lambda: aside.count() == 40, timeout=30, what="all to be put aside")
    turn_off("default", [long.pk], by="me")
    of_a, of_b = Job.objects.filter(tenant="a"), Job.objects.filter(tenant="b")
    wait_for(lambda: of_b.filter(state="succeeded").count() == 20, timeout=60, what="B's jobs")
    again = of_a.filter(due_at=short.expires_at)
    wait_for(lambda: again.count() == 20, timeout=30, what="A's to be put aside again")
    assert not of_a.filter(starts__gt=0).exists()
    turn_off("default", [short.pk], by="me")
    all_ran_once(40)
