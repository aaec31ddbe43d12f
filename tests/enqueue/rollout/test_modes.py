"""Under which mode a call is published, and with what stamp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from celery import chain, chord, group
from django.db import DatabaseError, connection, transaction

from celery_guard.enqueue.bulk import batch
from celery_guard.enqueue.many import enqueue_many
from celery_guard.enqueue.rollout import reading
from celery_guard.enqueue.rollout.mode import choose
from celery_guard.enqueue.rollout.models import TaskMode
from celery_guard.enqueue.rollout.reading import stage_of
from celery_guard.enqueue.rollout.turning import end_stages, set_stage
from celery_guard.enqueue.steering import known
from celery_guard.errors import MissingKey
from celery_guard.models import Job
from tests.enqueue.rollout.stages import arguments, messages
from tests.enqueue.tasks import app, high, keyed, unkeyed

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.mariadb,
    pytest.mark.filterwarnings("ignore:Call to deprecated:DeprecationWarning"),
]

Stage = Callable[..., TaskMode]
KEYS = [f"k{n}" for n in range(400)]


@pytest.mark.parametrize("mode", ["off", "compare"])
@pytest.mark.parametrize("form", ["delay", "apply_async", "signature", "by name", "later"])
def test_a_plain_mode_publishes_at_once(
    stage: Stage, redis_client: redis.Redis, mode: str, form: str
) -> None:
    """As Celery does for an unguarded task: no job, no header, no wait for the commit."""
    stage(high, mode)
    with transaction.atomic():
        match form:
            case "delay":
                high.delay("a")
            case "apply_async":
                high.apply_async(("a",), on_overload="raise")
            case "signature":
                high.s("a").apply_async()
            case "by name":
                app().send_task(high.name, ("a",))
            case "later":
                high.apply_async(("a",), countdown=0.01)
        (message,) = messages(redis_client, high)
    assert arguments(message) == ["a"]
    assert "guard_job" not in message["headers"]
    assert not Job.objects.exists()


@pytest.mark.parametrize("mode", ["on", "canary:100"])
def test_a_guarding_mode_is_stamped(stage: Stage, redis_client: redis.Redis, mode: str) -> None:
    """Every way to enqueue writes a job that knows the mode it was asked for under."""
    stage(high, mode)
    high.delay("a")
    high.apply_async(("b",), countdown=5)
    app().send_task(high.name, ("c",))
    enqueue_many([high.s("d"), high.s("e")])
    with batch():
        high.delay("f")
    assert messages(redis_client, high) == []
    stamps = Job.objects.values_list("key", "mode")
    assert dict(stamps) == dict.fromkeys([f"high:{c}" for c in "abcdef"], mode.partition(":")[0])


def test_a_stamp_stays(stage: Stage) -> None:
    """A mode set later changes no job that is there; one that runs again gets the new one's."""
    stage(high, "canary:100")
    job = high.delay("a").job
    stage(high, "on")
    assert high.delay("a").job == job
    assert Job.objects.get().mode == "canary"
    Job.objects.update(state="failed", due_at=None, finished_at="2020-01-01T00:00:00Z")
    high.delay("a")
    assert Job.objects.get().mode == "on"


def test_canary_selects_by_key_for_ever(stage: Stage) -> None:
    """About the percentage, the same keys each time, and a larger one selects them too."""

    def selected(percent: float) -> set[str]:
        stage(keyed, f"canary:{percent}")
        return {key for key in KEYS if choose(keyed, (key,), {}).guards}

    few, more = selected(10), selected(50)
    assert 15 <= len(few) <= 70, "about 40 of 400"
    assert 150 <= len(more) <= 250, "about 200 of 400"
    assert few < more
    assert few == selected(10)
    assert selected(100) == set(KEYS)
    stage(high, "canary:10")
    others = {key for key in KEYS if choose(high, (key,), {}).guards}
    assert others != few, "each task draws for itself"


def test_canary_publishes_the_rest_plainly(stage: Stage, redis_client: redis.Redis) -> None:
    """Each call goes one way or the other, none both, none neither."""
    stage(high, "canary:30")
    for key in KEYS[:60]:
        high.delay(key)
    plain = {arguments(message)[0] for message in messages(redis_client, high)}
    guarded = {key.removeprefix("high:") for key in Job.objects.values_list("key", flat=True)}
    assert len(plain) + len(guarded) == 60
    assert plain | guarded == set(KEYS[:60])
    assert set(Job.objects.values_list("mode", flat=True)) == {"canary"}


def test_canary_goes_by_the_arguments_where_there_is_no_key(stage: Stage) -> None:
    """However they are spelled."""
    stage(unkeyed, "canary:50")
    chosen = [choose(unkeyed, (key,), {}) for key in KEYS]
    assert chosen == [choose(unkeyed, (), {"value": key}) for key in KEYS]
    assert len(set(chosen)) == 2


def test_a_call_that_has_no_key_is_refused_as_ever(stage: Stage) -> None:
    """Canary must not let through as plain what the guard would refuse."""
    stage(keyed, "canary:1")
    with pytest.raises(MissingKey):
        keyed.delay(None)
    with pytest.raises(TypeError):
        keyed.delay()


def test_what_was_set_wins_and_ends(stage: Stage, settings: Any) -> None:
    """The newest row counts until it is over; then the settings do, then their default."""
    settings.CELERY_GUARD = {
        **settings.CELERY_GUARD,
        "rollout": {"default": "off", "modes": {high.name: "canary:7"}},
    }
    assert str(stage_of(keyed)) == "off"
    assert str(stage_of(high)) == "canary:7"
    first = stage(high, "off")
    stage(high, "on")
    assert str(stage_of(high)) == "on"
    first.refresh_from_db()
    assert first.ended_by == "me"
    assert end_stages("default", [high.name, keyed.name], by="me") == [high.name]
    assert str(stage_of(high)) == "canary:7"
    stage(high, "off", seconds=600)
    TaskMode.objects.update(expires_at="2020-01-01T00:00:00Z")
    reading.forget()
    assert str(stage_of(high)) == "canary:7"


def test_the_toolkit_itself_is_always_on(settings: Any) -> None:
    """A site whose default is off still starts its canvases and runs its canary."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "rollout": {"default": "off"}}
    task = app().tasks["celery_guard.canary"]
    assert str(stage_of(task)) == "on"  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="always on"):
        set_stage("default", task=task.name, stage="off", reason="r", author="a", seconds=9)


def test_a_database_that_is_away_changes_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read last counts, inside a transaction too; a caller's transaction goes on."""
    stage(high, "off")
    assert str(stage_of(high)) == "off"

    def broken(using: str) -> Any:
        connection.cursor().execute("SELECT nothing FROM nowhere")

    monkeypatch.setattr(reading._known, "_read", broken)
    monkeypatch.setattr(known, "KEEPS", -1.0)
    with transaction.atomic():
        assert str(stage_of(high)) == "off"
        assert not Job.objects.exists(), "the transaction is not broken"
    with pytest.raises(DatabaseError):
        broken("default")


def test_every_fault_of_a_stage_is_told_at_once() -> None:
    """Nothing is written by a call that says too little."""
    with pytest.raises(ValueError, match=r"task is needed; reason is needed.*canary.*90 days"):
        set_stage("default", task=" ", stage="canary", reason="", author="me", seconds=0)
    assert not TaskMode.objects.exists()


@pytest.mark.parametrize("canvas", ["chain", "group", "chord"])
def test_a_canvas_of_plain_tasks_is_celerys_own(
    stage: Stage, redis_client: redis.Redis, canvas: str
) -> None:
    """Nothing of it goes to the outbox."""
    for task in (high, unkeyed):
        stage(task, "off")
    match canvas:
        case "chain":
            chain(high.si("a"), unkeyed.si()).apply_async()
        case "group":
            group(high.si("a"), high.si("b")).apply_async()
        case "chord":
            chord([high.si("a"), high.si("b")], unkeyed.si()).apply_async()
    assert len(messages(redis_client, high)) == (1 if canvas == "chain" else 2)
    assert not Job.objects.exists()


def test_inside_a_finish_a_plain_step_is_kept(stage: Stage, redis_client: redis.Redis) -> None:
    """What follows a job goes with its commit, whatever mode it has."""
    from celery_guard.outbox.capture import capture_everything

    stage(high, "off")
    with transaction.atomic(), capture_everything():
        high.delay("a")
    assert messages(redis_client, high) == []
    assert Job.objects.get().plain
