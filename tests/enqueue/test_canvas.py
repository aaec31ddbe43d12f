"""Groups, chains and chords: what is written, which ids the caller holds, and what can be waited for."""

import gc
import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery import chain, chord, group, signature
from celery.result import GroupResult
from django.db import transaction

from celery_guard.enqueue.canvas import CANVAS_TASK, starting
from celery_guard.errors import MissingKey
from celery_guard.jobs.models import Job
from celery_guard.outbox.capture import capture_everything
from tests.enqueue.rows import counts, headers_of, jobs, keys, message_of
from tests.enqueue.sessions import LONG, apart
from tests.enqueue.tasks import app, elsewhere, form_task, high, keyed, plain, silent, unkeyed
from tests.enqueue.watch import Watch
from tests.kit.wait import wait_for

pytestmark = [
    # Celery's own calls, with the newest redis-py.
    pytest.mark.filterwarnings("ignore:Call to deprecated"),
    pytest.mark.mariadb,
    pytest.mark.django_db(databases=["default", "other"]),
]


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Watches this thread; the Redis of broker and result backend is at `redis_port`."""
    with Watch() as watching:
        yield watching


@pytest.fixture
def redis_port() -> int | None:
    """Where broker and result backend are."""
    return urlsplit(os.environ["REDIS_URL"]).port


def canvas_of(job: Job) -> Any:
    """The frozen canvas that a job carries."""
    args, _, _ = json.loads(bytes(message_of(job).body))
    return args[0]


def run(job: Job) -> None:
    """What a worker does with a frozen canvas."""
    with transaction.atomic():
        app().tasks[CANVAS_TASK](canvas_of(job))


def test_a_chord_is_one_job_that_a_worker_starts(watch: Watch, redis_port: int) -> None:
    """In the request: one row, in the lane of its first task, and neither broker nor backend."""
    with transaction.atomic():
        chord([high.s("a"), keyed.s("b")], unkeyed.s()).delay()
    (job,) = jobs()
    assert (job.task, job.lane, job.key) == (CANVAS_TASK, "high", None)
    assert redis_port not in watch.ports()


@pytest.mark.parametrize(
    "member",
    [
        keyed.s(""),
        chain(keyed.s(""), unkeyed.s()),
        group(keyed.s(""), unkeyed.s()),
        chain(group(chain(keyed.s(""), unkeyed.s())), unkeyed.s()),
        chord([keyed.s("")], unkeyed.s()),
    ],
)
def test_a_chord_that_can_not_begin_is_refused_at_the_call(member: Any) -> None:
    """However deep in a member the first step is; in a worker nobody would hear of it."""
    with pytest.raises(MissingKey):
        chord([unkeyed.s(1), member], unkeyed.s()).delay()
    assert jobs() == []


def test_a_body_is_no_first_step() -> None:
    """What it gets is known when the header has ended, where that is empty too."""
    chord([unkeyed.s(1), chord([], keyed.s())], unkeyed.s()).delay()
    assert len(jobs()) == 1


def test_the_ids_in_hand_are_the_ids_that_run() -> None:
    """The result of a frozen chord names its body, and its parent the members."""
    add, total = form_task("add"), form_task("total")
    result = chord([add.s(1, 1), add.s(2, 2)], total.s()).delay()
    (frozen,) = jobs()
    run(frozen)
    members = [job for job in jobs() if job.task == add.name]
    assert [headers_of(job)["id"] for job in members] == [child.id for child in result.parent]
    assert {headers_of(job)["group"] for job in members} == {result.parent.id}
    embed = json.loads(bytes(message_of(members[0]).body))[2]
    assert embed["chord"]["options"]["task_id"] == result.id


def test_a_fixed_id_is_the_bodys() -> None:
    """``apply_async(task_id=…)`` on a chord names its body, as in Celery."""
    result = chord([unkeyed.s(1)], unkeyed.s()).apply_async(task_id="mine")
    assert result.id == "mine"
    run(jobs()[0])
    assert "mine" in str(bytes(message_of(jobs()[-1]).body))


def test_every_member_of_a_canvas_is_awaited() -> None:
    """Members of groups and chords, and whatever has a link or a chain behind it."""
    group(silent.s("a"), silent.s("b")).delay()
    chain(silent.si("c"), silent.si("d")).delay()
    silent.apply_async(("e",), link=silent.si("f"))
    silent.delay("g")
    assert [(job.key, job.awaited) for job in jobs()] == [
        ("silent:a", True),
        ("silent:b", True),
        ("silent:c", True),
        ("silent:e", True),
        ("silent:g", False),
    ]


def test_duplicates_in_a_group_are_echoes() -> None:
    """Each member keeps its id, so that the group's result is complete."""
    result = group(keyed.s("a"), keyed.s("a"), keyed.s("b")).delay()
    rows = {headers_of(job)["id"]: job for job in jobs()}
    survivor, echo, other = (rows[child.id] for child in result)
    assert (survivor.key, echo.survivor_id, other.key) == ("keyed:a", survivor.pk, "keyed:b")


def test_a_group_asks_neither_broker_nor_backend(watch: Watch, redis_port: int) -> None:
    """Celery would subscribe to every member's result."""
    with transaction.atomic():
        group(keyed.s("a"), keyed.s("b")).delay()
        chain(keyed.s("c"), group(unkeyed.s(), unkeyed.s())).delay()
        form_task("add").chunks([(1, 1), (2, 2)], 1).delay()
    assert redis_port not in watch.ports()


def test_a_groups_results_can_be_waited_for(
    watch: Watch, redis_port: int, redis_client: Any
) -> None:
    """Nobody is subscribed at the call; who waits is, to every member."""
    result = group(unkeyed.s(1), unkeyed.s(2)).delay()
    assert isinstance(result, GroupResult)
    assert redis_port not in watch.ports()
    ids = [child.id for child in result]

    def answer() -> None:
        channels = [f"celery-task-meta-{task_id}" for task_id in ids]
        wait_for(
            lambda: all(count for _, count in redis_client.pubsub_numsub(*channels)),
            what="the subscriptions",
        )
        for task_id in ids:
            app().backend.store_result(task_id, f"of {task_id}", "SUCCESS")

    answered = apart(answer)
    assert result.get(timeout=LONG) == [f"of {task_id}" for task_id in ids]
    answered.result(LONG)


def test_results_that_nobody_waits_for_are_forgotten() -> None:
    """A web process that sends groups all day does not grow."""
    group(unkeyed.s(), unkeyed.s()).delay()  # the first makes subscriptions wait
    gc.collect()
    consumer = app().backend.result_consumer
    deferred = next(
        cell.cell_contents
        for cell in consumer.consume_from.__closure__
        if isinstance(cell.cell_contents, set)
    )
    before = len(deferred)
    result = group(unkeyed.s(n) for n in range(20)).delay()
    assert len(deferred) >= before + 20
    del result
    gc.collect()
    assert len(deferred) <= before


def test_a_canvas_from_json_is_a_canvas() -> None:
    """Signatures stored as plain data, as in a chain's later steps."""
    for canvas in (
        chord([keyed.s("a")], unkeyed.s()),
        group(keyed.s("b"), unkeyed.s(1)),
        chain(keyed.s("c"), unkeyed.si(1)),
    ):
        signature(json.loads(json.dumps(canvas)), app=app()).delay()
    assert [job.task for job in jobs()] == [CANVAS_TASK, keyed.name, unkeyed.name, keyed.name]


def test_a_canvas_without_guarded_tasks_is_celerys(redis_client: Any) -> None:
    """``capture = "guarded"``: not ours, so it works exactly as before."""
    with transaction.atomic():
        chord([plain.s(1), plain.s(2)], plain.s()).delay()
    assert counts() == (0, 0)
    assert redis_client.llen(app().conf.task_default_queue) == 2


def test_everything_of_a_canvas_is_kept_when_everything_is(
    settings: Any, watch: Watch, redis_port: int
) -> None:
    """``capture = "all"``: plain chords and groups need no network in the request either."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "outbox": {"capture": "all"}}
    with transaction.atomic():
        chord([plain.s(1), plain.s(2)], plain.s()).delay()
        group(plain.s(3), plain.s(4)).delay()
        plain.delay(5)
    assert [(job.task, job.plain) for job in jobs()] == [
        (CANVAS_TASK, False),
        (plain.name, True),
        (plain.name, True),
        (plain.name, True),
    ]
    assert redis_port not in watch.ports()


def test_a_finish_keeps_everything_that_it_sends(watch: Watch, redis_port: int) -> None:
    """Inside ``capture_everything`` the setting makes no difference."""
    with transaction.atomic(), capture_everything():
        plain.delay(1)
        keyed.delay("a")
        chord([plain.s(1)], plain.s()).delay()
        app().send_task("somewhere.else")
    assert [job.task for job in jobs()] == [plain.name, keyed.name, CANVAS_TASK, "somewhere.else"]
    assert redis_port not in watch.ports()


def test_a_finish_on_another_database_keeps_its_messages_there() -> None:
    """Plain messages go where the finishing transaction is."""
    with transaction.atomic(using="other"), capture_everything("other"):
        plain.delay(1)
        elsewhere.delay("a")
    assert (counts("default"), counts("other")) == ((0, 0), (2, 2))


def test_starting_a_canvas_sends_its_members_through_the_outbox() -> None:
    """The worker's transaction holds the members; the chord's counter is set in the backend."""
    with transaction.atomic(), starting():
        chord([keyed.s("a"), unkeyed.s(1)], unkeyed.s()).delay()
        transaction.set_rollback(True)
    assert counts() == (0, 0)


def test_maps_of_guarded_tasks_are_messages_of_the_transaction() -> None:
    """One message for many calls: no key of its own, but never before the commit."""
    with transaction.atomic():
        unkeyed.map([1, 2]).delay()
        elsewhere.map(["a"])  # Only a signature.
    (job,) = jobs()
    assert (job.task, job.plain) == ("celery.map", True)
    assert keys() == [None]
