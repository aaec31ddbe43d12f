"""Small jobs beside long ones: what a lane keeps free for them, and what it sends."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from celery_guard import UNKEYED, guarded_task
from celery_guard.conf import Small, read_settings
from celery_guard.enqueue.steering.turning import turn_on
from celery_guard.jobs import sharing
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.models import Job, LaneLead
from celery_guard.relay import fair, reserve
from celery_guard.relay.fair import Turns
from celery_guard.relay.placing import Places
from celery_guard.relay.presence import Worker
from tests.factories import make_job
from tests.jobs.requests import ask, held_elsewhere
from tests.relay.ledger import lead, measured, queue_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]

LONG, SMALL = "shop.report", "shop.mail"


@pytest.fixture(autouse=True)
def kept(settings: Any) -> None:
    """The lane keeps half of its slots for jobs under ten seconds; two tasks were measured."""
    keep(settings, under=10, share=0.5)
    measured(LONG, seconds=600, runs=10)
    measured(SMALL, seconds=5, runs=10)


def keep(settings: Any, **small: float) -> None:
    """What the lane keeps."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "lanes": {"high": {"small": small}}}


def wait(task: str, count: int = 1, **changes: Any) -> list[Job]:
    """Jobs of a task that are due."""
    return [make_job("high", task=task, **changes) for _ in range(count)]


def turns() -> Turns:
    """A relay's turns that know nothing yet."""
    return Turns("default", Places("default"))


def send(by: Turns | None = None, *, slots: int = 4, batch: int = 100) -> Counter[str]:
    """Of which tasks one release sends how many."""
    LaneLead.objects.filter(lane="high").delete()
    workers = [Worker(name="w", queues=(queue_of("high"),), slots=slots)]
    sent = (by or turns()).release(lead("high"), batch, workers)
    return Counter(s.task for s in sent if s.sent_at is not None)


def end(task: str, count: int = 1) -> None:
    """So many of a task's sent jobs have ended."""
    for job in Job.objects.filter(task=task, sent_at__isnull=False)[:count]:
        Job.objects.filter(pk=job.pk).update(
            state="succeeded", sent_at=None, due_at=None, finished_at=job.created_at
        )


@pytest.mark.parametrize(
    ("share", "slots", "most"),
    [(0.5, 4, 2), (0.25, 4, 3), (0.1, 30, 27), (0.1, 4, 3), (0.9, 20, 2), (0.9, 1, 1), (0, 4, 4)],
)
def test_the_share_is_rounded_up_and_one_long_job_may_run(share: float, slots: int, most: int):
    """A share that is asked for is at least a slot, and a lane of one slot still runs long jobs."""
    assert reserve.most_long(Small(share=share), slots) == most


def test_what_is_kept_is_checked():
    """A share of all would leave long jobs nothing, and misspelt names are told."""
    wrong = {"under": 0, "share": 1, "shares": 0.5}
    settings, faults = read_settings({"lanes": {"high": {"small": wrong}, "low": {"small": None}}})
    assert sorted(faults) == [
        "lanes.high.small.share must be from 0 to below 1, not 1",
        "lanes.high.small.shares is not a setting; did you mean 'share'?",
        "lanes.high.small.under must be above 0, not 0",
    ]
    assert settings.lane("low").small is None


@pytest.mark.bar
def test_long_jobs_leave_slots_free():
    """However many wait and whatever the window holds, they take their part of the slots only."""
    wait(LONG, 40)
    by = turns()
    assert send(by) == {LONG: 2}
    assert send(by) == {}
    end(LONG)
    assert send(by) == {LONG: 1}


@pytest.mark.bar
def test_a_small_job_passes_the_long_ones_before_it():
    """It is sent at once, from behind the whole backlog, and long jobs go on in their part."""
    wait(LONG, 40, due_in=-60)
    by = turns()
    send(by)
    wait(SMALL, 3)
    assert send(by) == {SMALL: 3}
    end(LONG)
    wait(SMALL)
    assert send(by) == {LONG: 1, SMALL: 1}


def test_small_jobs_take_all_there_is_while_no_long_one_waits():
    """The whole window, and so all slots, the oldest first."""
    old = wait(SMALL, 16, due_in=-60)
    wait(SMALL, 20, due_in=-40)
    assert send() == {SMALL: 16}
    assert all(job.sent_at for job in Job.objects.filter(pk__in=[job.pk for job in old]))


def test_a_flood_of_small_jobs_overtakes_no_long_one_for_ever():
    """By what one look sends at most; then it is the oldest, and has the next free place."""
    wait(SMALL, 10, due_in=-60)
    wait(LONG, due_in=-50)
    wait(SMALL, 40, due_in=-40)
    by = turns()
    assert send(by) == {SMALL: 16}
    end(SMALL)
    assert send(by) == {LONG: 1}


def test_a_task_of_which_nothing_is_known_is_long():
    """The promise is for jobs that are known to be small."""
    wait("shop.new", 9)
    assert send() == {"shop.new": 2}


@guarded_task(key=UNKEYED, cost=2)
def declared() -> None:
    """Says what it costs."""


def test_what_a_task_says_it_costs_wins():
    """Also over what was measured."""
    measured(declared.name, seconds=900, runs=10)
    wait(declared.name, 9)
    assert send() == {declared.name: 9}


def test_a_plain_job_is_not_held_back():
    """Once it is sent the ledger has forgotten it: nobody can say how many of them run."""
    wait(LONG, 9, due_in=-60)
    by = turns()
    send(by)
    wait("shop.unguarded", plain=True)
    assert send(by) == {"shop.unguarded": 1}


@pytest.mark.parametrize("window", [None, 3])
def test_the_bound_holds_in_any_window(settings: Any, window: int | None):
    """Without a window long jobs still leave slots free; a narrow one bounds all jobs together."""
    lane = {"small": {"share": 0.5}, "window": window}
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "lanes": {"high": lane}}
    wait(LONG, 9, due_in=-60)
    wait(SMALL, 9)
    assert send() == {LONG: 2, SMALL: 9 if window is None else 1}


def test_no_worker_has_reported_so_nothing_is_kept():
    """A share of unknown slots is unknown; what is sent runs when a worker comes."""
    wait(LONG, 9)
    LaneLead.objects.filter(lane="high").delete()
    assert len(turns().release(lead("high"), 100, [])) == 9


@pytest.mark.bar
def test_tenants_take_turns_on_both_sides():
    """A's flood of long jobs and its flood of small ones: B is next among each of them."""
    wait(LONG, 20, tenant="a", due_in=-60)
    by = turns()
    assert send(by) == {LONG: 2}
    wait(SMALL, 20, tenant="a")
    wait(SMALL, tenant="b")
    wait(LONG, tenant="b")
    assert send(by) == {SMALL: 1}
    assert Job.objects.get(tenant="b", task=SMALL).sent_at
    assert send(by) == {SMALL: 3}, "A's, in a window for two"
    end(LONG)
    send(by)
    assert Job.objects.get(tenant="b", task=LONG).sent_at


def test_small_jobs_of_one_tenant_shut_out_no_long_one_of_another():
    """While both wait the window is that of a shared lane, and each has its turn."""
    wait(SMALL, 40, tenant="a", due_in=-60)
    by = turns()
    assert send(by) == {SMALL: 16}
    wait(LONG, 5, tenant="b", due_in=-10)
    end(SMALL, 11)
    assert send(by) == {LONG: 1}


@pytest.mark.parametrize("form", ["whole", "shared", "steered"])
def test_a_hold_and_a_coalesced_job_are_heeded_among_the_small_ones(form: str):
    """What a switch holds is put aside, and of a key one job is sent."""
    tenant = "a" if form == "shared" else ""
    wait(LONG, 9, due_in=-60, tenant=tenant)
    by = turns()
    send(by)
    for _ in range(3):
        ask("k", lane="high", task=SMALL, tenant=tenant)
    if form == "steered":
        turn_on("default", action="hold", reason="r", author="me", seconds=600, task="shop.held")
        measured("shop.held", seconds=1, runs=1)
        wait("shop.held")
        by = turns()
    assert send(by) == {SMALL: 1}
    assert Job.objects.filter(task=SMALL, state="superseded").count() == 2
    if form == "steered":
        assert Job.objects.get(task="shop.held").reason == "paused"


def test_rows_that_others_have_locked_keep_nobody_waiting():
    """A transaction that stays open on the oldest small jobs delays those alone."""
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time: nothing is passed over")
    wait(LONG, 9, due_in=-90)
    by = turns()
    send(by)
    locked = [job.pk for job in wait(SMALL, 5, due_in=-60)]
    free = wait(SMALL)

    def hold() -> None:
        list(Job.objects.select_for_update().filter(pk__in=locked))

    with held_elsewhere(hold, commit=False):
        assert send(by, batch=2) == {SMALL: 1}
    assert Job.objects.get(pk=free[0].pk).sent_at


@pytest.mark.bar
@pytest.mark.parametrize("at_once", [True, False])
def test_a_small_job_is_found_behind_thousands(monkeypatch: pytest.MonkeyPatch, *, at_once: bool):
    """In the middle of a long line, at its end, and where all were due at one moment."""
    for module in (sharing, fair):
        monkeypatch.setattr(module, "HEAD_ONLY", sharing.Stretch(most=5))
    wait(LONG, 12, due_in=-600)
    wait(SMALL, due_in=-500)
    wait(LONG, 12, due_in=-400)
    if at_once:
        Job.objects.update(due_at=DatabaseNow())
    by = turns()
    assert send(by)[SMALL] == 1
    wait(SMALL)
    assert send(by) == {SMALL: 1}, "found at the end of the line, without another look along it"


def test_the_line_is_read_as_a_whole_now_and_then_only(monkeypatch: pytest.MonkeyPatch):
    """Every two seconds, however often the lane is looked at."""
    looks: list[str] = []
    monkeypatch.setattr(sharing, "find", lambda using, lane, wanted: looks.append(lane))
    wait(LONG, 9)
    by = turns()
    for _ in range(5):
        send(by)
    assert looks == ["high"]


def test_what_was_marked_is_taken_back_when_the_second_look_fails(monkeypatch: pytest.MonkeyPatch):
    """Marked and not handed on, it would wait until it counts as lost."""

    def broken(*_: object) -> None:
        raise RuntimeError("no answer")

    monkeypatch.setattr(reserve.SmallOnes, "due", broken)
    wait(LONG, 3)
    with pytest.raises(RuntimeError):
        send()
    assert not Job.objects.filter(sent_at__isnull=False).exists()


def test_a_lane_that_keeps_nothing_pays_nothing(settings: Any):
    """One statement for a look, as without the setting."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL's statement")
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "lanes": {"low": {"small": {}}}}
    wait(LONG, 2)
    held, by = lead("high"), turns()
    workers = [Worker(name="w", queues=(queue_of("high"),), slots=4)]
    with CaptureQueriesContext(connection) as captured:
        assert len(by.release(held, 50, workers)) == 2
    assert len(captured) == 1
