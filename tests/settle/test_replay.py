"""Dead letters run again in bulk: chosen once, paced, each at most once, and never blindly."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone

from celery_guard.events import Event
from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.states import State
from celery_guard.models import Attempt, Effect, Job, Replay, ReplayItem
from celery_guard.outbox import hook
from celery_guard.settle.replay import choosing, moving, starting, stepping
from celery_guard.settle.replay.choosing import Wanted, preview
from celery_guard.settle.replay.stepping import replay_a_little, step
from tests.watch.rows import ended, running

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]

TASK = "shop.pay"
BOOM, BANG = "a" * 32, "b" * 32


def dead(task: str = TASK, mark: str = BOOM, **changes: Any) -> Job:
    """A dead letter with the attempt that ended it."""
    job = ended("high", State.FAILED, task=task, reason="unknown_error", **changes)
    died(job, mark)
    return job


def died(job: Job, mark: str, number: int = 1) -> None:
    """One more attempt that ended the job."""
    Attempt.objects.create(
        job=job,
        number=number,
        outcome="failed",
        reason="unknown_error",
        fingerprint=mark,
        ended_at=timezone.now(),
    )


def start(pace: str = "1000/s", **wanted: str) -> Replay:
    """A replay of the task's dead letters, or of others."""
    which = Wanted(**(wanted or {"task": TASK}))
    return starting.start("default", which, pace=pace, reason="mended", author="ana")


def work() -> None:
    """Every step that is due."""
    while step("default"):
        pass


def due(replay: Replay, seconds: float = 0.0) -> None:
    """So many seconds have passed since the last step was due."""
    Replay.objects.filter(pk=replay.pk).update(next_at=in_seconds(-seconds))


def states() -> list[str]:
    """Of all jobs, in order."""
    return list(Job.objects.order_by("pk").values_list("state", flat=True))


def whys(replay: Replay) -> list[str]:
    """What became of each member: its state, or why it was left alone."""
    items = ReplayItem.objects.filter(replay=replay).order_by("job_id")
    return [item.reason or item.state for item in items]


def test_a_replay_runs_its_members_again_and_no_others() -> None:
    """Same row, budgets anew; other tasks and jobs that ended otherwise stay."""
    jobs = [dead(failures=9) for _ in range(3)]
    dead("shop.other")
    ended("high", State.CANCELLED, task=TASK)
    ended("high", task=TASK)
    replay = start()
    work()
    replay.refresh_from_db()
    assert states() == ["waiting"] * 3 + ["failed", "cancelled", "succeeded"]
    assert Job.objects.get(pk=jobs[0].pk).failures == 0
    assert (replay.state, replay.chosen, replay.replayed, replay.left) == ("done", 3, 3, 0)
    assert replay.finished_at is not None


@pytest.mark.parametrize(
    "wanted",
    [{"mark": BANG}, {"task": "shop.mail"}, {"lane": "low"}, {"tenant": "t"}],
    ids=str,
)
def test_members_are_chosen_by_what_they_share(wanted: dict[str, str]) -> None:
    """Task, group, lane or tenant."""
    dead()
    one = dead("shop.mail", BANG, tenant="t")
    Job.objects.filter(pk=one.pk).update(lane="low")
    start(**wanted)
    work()
    assert states() == ["failed", "waiting"]


def test_a_group_is_of_the_latest_end_or_of_the_reason() -> None:
    """A job that died again of something else is in that group; one never tried in its reason's."""
    moved = dead()
    died(moved, BANG, number=2)
    untried = ended("high", State.FAILED, task="shop.new", reason="unknown_task")
    start(mark=BOOM)
    start(mark="unknown_task")
    work()
    assert states() == ["failed", "waiting"]
    assert Job.objects.get(state="waiting").pk == untried.pk


def test_membership_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever dies after the start is no member, wherever its row stands; nor is who died again."""
    monkeypatch.setattr(choosing, "RANGE", 2)
    first, later = dead(), dead()
    Job.objects.filter(pk=later.pk).update(state="running", owner=later.public_id, error=None,
        due_at=timezone.now(), sent_at=timezone.now(), finished_at=None)  # fmt: skip
    replay = start()
    Job.objects.filter(pk=later.pk).update(state="failed", owner=None, error="{}", due_at=None,
        sent_at=None, finished_at=in_seconds(1))  # fmt: skip
    dead()
    step("default")
    step("default")
    Job.objects.filter(pk=first.pk).update(finished_at=in_seconds(1))
    work()
    assert states() == ["failed"] * 3
    assert whys(replay) == ["moved_on"]


def test_a_replay_is_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many a second from its beginning on, by the database's clock, and no more after a pause."""
    for _ in range(20):
        dead()
    replay = start(pace="1/m")
    work()
    assert states().count("waiting") == 1
    with monkeypatch.context() as patient:
        patient.setattr(stepping, "BEHIND", 10_000)
        due(replay, 150)
        work()
    assert states().count("waiting") == 1 + 3
    due(replay, 3600)
    work()
    assert states().count("waiting") == 4 + 1


def test_a_step_that_dies_has_not_been(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs, what is noted of them and the pace are committed together; the next one goes on."""
    monkeypatch.setattr(stepping, "STEP", 2)
    for _ in range(5):
        dead()
    replay = start()
    step("default")
    step("default")
    due(replay, 5)
    step("default")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    due(replay, 5)
    with monkeypatch.context() as killed:
        killed.setattr(stepping, "fault_point", die)
        with pytest.raises(KeyboardInterrupt):
            step("default")
    assert (states().count("waiting"), whys(replay).count("replayed")) == (2, 2)
    for _ in range(2):
        due(replay, 5)
        step("default")
    replay.refresh_from_db()
    assert (states(), replay.replayed, replay.state) == (["waiting"] * 5, 5, "done")


def test_two_steps_at_once_never_move_a_job_twice() -> None:
    """The second finds the replay locked, and does nothing."""
    if connection.vendor == "sqlite":
        pytest.skip("has one writer")
    job = dead()
    replay = start()
    step("default")
    step("default")
    done: list[bool] = []

    def second() -> None:
        try:
            done.append(step("default"))
        finally:
            connections.close_all()

    with transaction.atomic():
        assert Replay.objects.select_for_update().get(pk=replay.pk)
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(10)
    assert done == [False]
    due(replay, 1)
    work()
    job.refresh_from_db()
    assert (job.state, job.fence) == ("waiting", 1)


def test_a_job_that_somebody_holds_waits_for_its_turn() -> None:
    """It is asked about again, and the others go on."""
    if connection.vendor == "sqlite":
        pytest.skip("has one writer")
    held, free = dead(), dead()
    replay = start()
    locked, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Job.objects.select_for_update().get(pk=held.pk)
                locked.set()
                go_on.wait(20)
        finally:
            connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    assert locked.wait(10)
    for _ in range(3):
        due(replay, 1)
        step("default")
    go_on.set()
    thread.join(10)
    assert states() == ["failed", "waiting"]
    assert whys(replay) == ["pending", "replayed"]
    due(replay, 1)
    work()
    free.refresh_from_db()
    assert (states(), free.fence) == (["waiting", "waiting"], 1)


def test_two_replays_of_the_same_jobs_move_each_once() -> None:
    """The second finds that they have moved on."""
    job = dead()
    first = start()
    step("default")
    step("default")
    due(first, -600)
    other = start()
    step("default")
    step("default")
    due(first, 10)
    work()
    job.refresh_from_db()
    assert (job.state, job.fence, whys(first)) == ("waiting", 1, ["replayed"])
    assert whys(other) == ["moved_on"]


@pytest.mark.parametrize("state", ["sent", "unknown", "manual"])
def test_an_effect_without_an_answer_is_settled_first(state: str) -> None:
    """The job stays, and its replay says why; others go."""
    asking, other = dead(), dead()
    Effect.objects.create(
        job=asking, name="charge", state=state, recovery="manual", created_at=timezone.now()
    )
    replay = start()
    work()
    assert states() == ["failed", "waiting"]
    assert whys(replay) == ["effect", "replayed"]
    assert moving.replay("default", asking.pk, other.pk) == 0
    Effect.objects.update(state="confirmed")
    assert moving.replay("default", asking.pk) == 1


def test_what_cannot_run_is_left_alone() -> None:
    """Purged, gone, run or cancelled since: each says so, none stops the others."""
    jobs = [dead() for _ in range(5)]
    replay = start()
    step("default")
    step("default")
    Job.objects.filter(pk=jobs[0].pk).update(message=None)
    Job.objects.filter(pk=jobs[1].pk).delete()
    Job.objects.filter(pk=jobs[2].pk).update(state="cancelled")
    Job.objects.filter(pk=jobs[3].pk).update(state="succeeded")
    work()
    assert whys(replay) == ["purged", "purged", "moved_on", "moved_on", "replayed"]
    replay.refresh_from_db()
    assert (replay.replayed, replay.skipped, replay.state) == (1, 4, "done")


def test_what_a_newer_success_has_covered_is_superseded() -> None:
    """It would undo what a later run saw."""
    old = timezone.now() - timedelta(minutes=5)
    dead(coalesce_key="p:1", finished_at=old, started_at=old)
    ended("high", task=TASK, coalesce_key="p:1", started_at=timezone.now())
    replay = start()
    work()
    assert states() == ["superseded", "succeeded"]
    assert whys(replay) == ["superseded"]


def test_what_dies_every_time_is_not_run_for_ever() -> None:
    """After so many bulk replays a job needs a person; other jobs go on."""
    job = dead()
    for _ in range(moving.AGAIN_MOST):
        start()
        work()
        Job.objects.filter(pk=job.pk, state="waiting").update(
            state="failed", due_at=None, error="{}", finished_at=in_seconds(0)
        )
    job.refresh_from_db()
    assert job.fence == moving.AGAIN_MOST
    dead()
    last = start()
    work()
    assert whys(last) == ["too_often", "replayed"]


def test_a_cancel_ends_it_where_it_is() -> None:
    """What was moved stays moved; it can't be cancelled twice, and no step follows."""
    for _ in range(5):
        dead()
    replay = start(pace="1/s")
    work()
    assert starting.cancel("default", replay.pk, by="eva")
    assert not starting.cancel("default", replay.pk, by="eva")
    due(replay, 60)
    work()
    replay.refresh_from_db()
    assert (states().count("waiting"), replay.state, replay.ended_by) == (1, "cancelled", "eva")


def test_it_is_done_with_its_last_job() -> None:
    """However slow its pace: nobody waits for a step that has nothing left to do."""
    dead()
    replay = start(pace="1/h")
    work()
    replay.refresh_from_db()
    assert (replay.state, replay.left) == ("done", 0)


def test_the_relay_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits again goes out at once, not at the next poll."""
    woken: list[set[str]] = []
    monkeypatch.setattr(hook, "_listeners", [lambda lanes, using: woken.append(lanes)])
    dead()
    start()
    work()
    assert woken == [{"high"}]


def test_the_duty_does_it_and_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the start to the end in one round, where little is to do."""
    told: list[Event] = []
    monkeypatch.setattr("celery_guard.events._receivers", [told.append])
    dead()
    replay = start()
    replay_a_little("default")
    assert states() == ["waiting"]
    names = [event.name for event in told if event.name.startswith("settle.replay")]
    assert names == ["settle.replay_started", "settle.replay_done"]
    assert told[-1].facts == {"replay": replay.pk, "replayed": 1, "skipped": 0}


def test_old_replays_are_forgotten_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their members with the payloads, they themselves with the keys; what is under way stays."""
    monkeypatch.setattr(stepping, "FORGOTTEN_AT_ONCE", 2)
    for _ in range(3):
        dead()
    old = start()
    work()
    Replay.objects.filter(pk=old.pk).update(finished_at=in_seconds(-31 * 86400))
    replay_a_little("default")
    assert ReplayItem.objects.count() == 1
    replay_a_little("default")
    replay_a_little("default")
    assert (ReplayItem.objects.count(), Replay.objects.count()) == (0, 1)
    Replay.objects.filter(pk=old.pk).update(finished_at=in_seconds(-91 * 86400))
    replay_a_little("default")
    assert Replay.objects.count() == 0


def test_a_replay_has_a_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends choosing there; who wants more asks again."""
    monkeypatch.setattr(stepping, "MEMBERS_MOST", 2)
    monkeypatch.setattr(choosing, "RANGE", 3)
    for _ in range(5):
        dead()
    start()
    work()
    assert states() == ["waiting"] * 2 + ["failed"] * 3


def test_a_preview_changes_nothing_and_tells_all() -> None:
    """How many, of which tasks, which of them would stay, the newest of them."""
    asking, other = dead(), dead("shop.mail")
    running("high", task=TASK)
    Effect.objects.create(
        job=asking, name="charge", state="unknown", recovery="manual", created_at=timezone.now()
    )
    before = states()
    found = preview("default", Wanted(mark=BOOM), 10)
    assert (found.jobs, found.asking, found.whole) == (2, 1, True)
    assert found.by_task == {TASK: 1, "shop.mail": 1}
    assert found.newest == [other.pk, asking.pk]
    assert states() == before
    assert not Replay.objects.exists()


def test_a_preview_that_takes_too_long_says_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops after a range, and says that it has."""
    monkeypatch.setattr(choosing, "RANGE", 1)
    dead()
    dead()
    found = preview("default", Wanted(task=TASK), -1)
    assert (found.jobs, found.whole) == (1, False)


def test_every_fault_of_a_start_is_told_at_once() -> None:
    """Nothing was written."""
    with pytest.raises(ValueError, match=r"reason is needed.*author.*name a task.*pace 'fast'"):
        starting.start("default", Wanted(), pace="fast", reason=" ", author="")
    with pytest.raises(ValueError, match="tenant may have 255"):
        starting.start("default", Wanted(tenant="x" * 300), pace="1/s", reason="r", author="a")
    assert not Replay.objects.exists()


def test_not_many_replays_are_under_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes its turn at a duty that everybody shares."""
    monkeypatch.setattr(starting, "AT_ONCE", 1)
    replay = start()
    with pytest.raises(ValueError, match="let some end first"):
        start()
    starting.cancel("default", replay.pk, by="eva")
    assert start()
