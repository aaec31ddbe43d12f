"""For whom a job is: by its own arguments where its task says how, else for whom it was asked."""

from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group, shared_task

from celery_guard import UNKEYED, guarded_task
from celery_guard.enqueue.tenants import tenant_here
from celery_guard.models import Job
from celery_guard.testing import drain
from tests.enqueue.test_ticks import HOUR, beat
from tests.run.delivery import deliver, job_of, receive, send
from tests.run.marks import on_database

pytestmark = [*on_database, pytest.mark.mariadb, pytest.mark.usefixtures("scratch")]


@guarded_task(key=UNKEYED, tenant="{shop}")
def rents(shop: int, name: str = "") -> str:
    """Says how in its declaration; asks for work where it has a name for it."""
    if name:
        bills.delay(name)
    return name


@guarded_task(key=UNKEYED)
def bills(*names: Any) -> str:
    """Does not say."""
    return "billed"


@guarded_task(key=UNKEYED)
def bills_on(*names: Any) -> None:
    """Does not say either, and asks for more."""
    bills.delay()


@guarded_task(key=UNKEYED, bind=True, tenant="{shop}")
def hands_over(self: Any, shop: int) -> Any:
    """Is replaced."""
    return self.replace(bills.s())


@guarded_task(key=UNKEYED, bind=True, tenant="{shop}")
def again(self: Any, shop: int, with_shop: int) -> None:
    """Asks for another attempt, the first time with other arguments."""
    if self.request.retries < 2:
        raise self.retry((with_shop, with_shop), countdown=0)


@guarded_task(key=UNKEYED, tenant="{shop}")
def fails(shop: int) -> None:
    """Its errback is asked for with it."""
    raise ValueError(shop)


@guarded_task(key=UNKEYED)
def hears(task_id: str) -> None:
    """An errback, which does not say."""


@shared_task
def plain(*names: Any) -> None:
    """Unguarded, and asks for guarded work."""
    bills.delay()


def tenants() -> dict[str, list[str]]:
    """The tenants of all jobs, by their tasks' last names."""
    found: dict[str, list[str]] = {}
    for task, tenant in Job.objects.order_by("pk").values_list("task", "tenant"):
        found.setdefault(task.rpartition(".")[2], []).append(tenant)
    return found


def test_a_step_that_says_how_is_its_own_tenants() -> None:
    """Whoever asks: its arguments go before."""
    chain(rents.si(7), rents.si(8), bills.s()).delay()
    drain()
    assert tenants() == {"rents": ["7", "8"], "bills": ["8"]}


def test_steps_links_and_calls_are_for_the_jobs_tenant() -> None:
    """The next step, a callback, a call in the body, and what these ask for in turn."""
    chain(rents.s(7, "a").on_error(hears.s()), bills_on.s()).delay()
    rents.apply_async((8,), link=[bills.s(), bills_on.s()])
    drain()
    assert tenants() == {
        "rents": ["7", "8"],
        "bills": ["7", "8", "7", "8"],
        "bills_on": ["7", "8"],
    }


def test_a_group_is_of_many_tenants() -> None:
    """Asked for outside, each member's is its own; a member that does not say has none."""
    group(rents.s(7), rents.s(8), bills.s()).delay()
    assert tenants() == {"rents": ["7", "8"], "bills": [""]}


@pytest.mark.parametrize("first", [rents.s(7), chain(rents.s(7), bills.s())])
def test_a_chord_is_started_for_its_first_tenant(first: Any) -> None:
    """So a flood of chords is its tenant's; members and body that do not say are for it too."""
    chord([bills.si(), first.clone(), rents.s(8)], bills_on.s()).delay()
    assert tenants() == {"start_canvas": ["7"]}
    drain()
    found = tenants()
    assert found["rents"] == ["7", "8"]
    assert set(found["bills"]) <= {"7", "8"}
    assert found["bills_on"] in (["7"], ["8"])


def test_a_copys_answer_is_for_the_jobs_tenant() -> None:
    """Whoever was not told yet hears of it by a copy of the message, which runs no body."""
    handle = fails.apply_async((8,), link_error=hears.si("x"))
    message = send(job_of(handle))
    receive(message)
    Job.objects.filter(task=fails.name).update(answered_at=None)
    receive(message)
    assert tenants() == {"fails": ["8"], "hears": ["8", "8"]}


def test_replacements_and_errbacks_are_for_the_jobs_tenant() -> None:
    """What takes a job's place, and what hears of its failure."""
    hands_over.delay(7)
    fails.apply_async((8,), link_error=hears.s())
    drain()
    assert (tenants()["bills"], tenants()["hears"]) == (["7"], ["8"])


def test_a_retry_stays_with_its_tenant() -> None:
    """With other arguments too: its place in line and its bounds are those that it was taken with."""
    job = job_of(again.delay(7, 8))
    for _ in range(3):
        deliver(job)
    assert tenants() == {"again": ["7"]}
    job.refresh_from_db()
    assert (job.state, job.failures) == ("succeeded", 2)


def test_a_step_that_can_not_be_enqueued_is_the_jobs_tenants() -> None:
    """The dead letter is found under the tenant that waits for it."""
    chain(rents.s(7), rents.si("")).delay()
    drain()
    assert tenants() == {"rents": ["7", "7"]}


@pytest.mark.parametrize(("task", "args", "tenant"), [(rents, (7,), "7"), (bills, (), "")])
def test_a_tick_is_for_its_entrys_tenant(task: Any, args: tuple[int, ...], tenant: str) -> None:
    """A periodic entry says so by its arguments, or has none."""
    scheduler, entry = beat(task, *args, due=HOUR)
    scheduler.apply_async(entry)
    assert [found.tenant for found in Job.objects.all()] == [tenant]


def test_a_plain_task_passes_nothing_on(scratch: Path) -> None:
    """It has no row that could hold it; and nothing is left behind by a job."""
    chain(rents.s(7), plain.s()).delay()
    drain()
    assert tenants() == {"rents": ["7"], "bills": [""]}
    assert tenant_here() == ""
