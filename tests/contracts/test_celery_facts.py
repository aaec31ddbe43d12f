"""What the guard builds on in Celery, kombu and Django, each stated once, where it would be seen."""

import inspect
from typing import Any

import pytest
from celery import Celery, Signature, chain, chord, group
from celery.app.amqp import AMQP
from celery.backends.asynchronous import BaseResultConsumer
from celery.canvas import _chain, _chord  # type: ignore[attr-defined]
from celery.utils.time import maybe_make_aware
from django.db import connection, transaction
from kombu import Producer
from kombu.transport.redis import Channel


class Recorder(Producer):
    """A producer that only writes down what it is asked."""

    def __init__(self, app: Celery, log: list[Any]) -> None:
        self.app = app
        self.log = log

    def publish(self, body: Any, **options: Any) -> None:
        """Celery's one way out."""
        self.log.append(("publish", body, options))


@pytest.fixture
def bare() -> Celery:
    """An app of nobody's, with a backend that says when it is told of a call."""
    return Celery("facts", broker="memory://", backend="cache+memory://", set_as_current=False)


def test_every_message_passes_one_sender(bare: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """``create_task_message``, then the result backend, then ``send_task_message``: in this order."""
    log: list[Any] = []
    amqp = bare.amqp
    build, send = amqp.create_task_message, amqp.send_task_message

    def building(*args: Any, **options: Any) -> Any:
        log.append("build")
        return build(*args, **options)

    def sending(producer: Any, name: str, message: Any, **options: Any) -> Any:
        log.append("send")
        return send(Recorder(bare, log), name, message, **options)

    monkeypatch.setattr(amqp, "create_task_message", building)
    monkeypatch.setattr(amqp, "send_task_message", sending)
    monkeypatch.setattr(bare.backend, "on_task_call", lambda *_: log.append("backend"))
    bare.send_task("a.task", (1,), {"b": 2})
    assert log[:3] == ["build", "backend", "send"]
    assert [entry[0] for entry in log[3:]] == ["publish"]


def test_a_message_is_args_kwargs_and_what_follows(bare: Celery) -> None:
    """Protocol 2, and the names under which the next steps travel."""
    assert bare.conf.task_protocol == 2
    message = bare.amqp.create_task_message("id", "a.task", (1,), {"b": 2})
    args, kwargs, embed = message.body
    assert (args, kwargs) == ((1,), {"b": 2})
    assert embed.keys() == {"callbacks", "errbacks", "chain", "chord"}
    assert message.headers["id"] == "id"


def test_the_sender_is_made_by_a_method_of_the_amqp_class() -> None:
    """So a subclass can wrap it, whatever the site has set."""
    assert list(inspect.signature(AMQP._create_task_sender).parameters) == ["self"]  # type: ignore[attr-defined]


def test_kombu_leaves_a_finished_body_alone() -> None:
    """A body with a content type is sent byte for byte; without one it is encoded."""
    prepare = Producer._prepare  # type: ignore[attr-defined]
    headers: dict[str, Any] = {}
    nobody: Any = Producer.__new__(Producer)
    done = prepare(nobody, b"\x00raw", None, "application/json", "utf-8", None, headers)
    assert done == (b"\x00raw", "application/json", "utf-8")
    made = prepare(nobody, [1], "json", None, None, None, headers)
    assert made == ("[1]", "application/json", "utf-8")


def test_subscriptions_pass_three_methods() -> None:
    """The consumer of results: subscribing, unsubscribing, and the moment before a wait."""
    for name in ("consume_from", "cancel_for", "on_wait_for_pending"):
        assert callable(getattr(BaseResultConsumer, name))


def test_composite_signatures_start_in_three_methods() -> None:
    """A group and a chord at ``apply_async``, a chain at ``run``."""
    for kind, name in ((group, "apply_async"), (_chain, "run"), (_chord, "apply_async")):
        assert "args" in inspect.signature(getattr(kind, name)).parameters
    one = Signature("a.task")
    assert isinstance(chain(one, one), _chain)
    assert chord is _chord


def test_mapped_tasks_are_three_builtin_tasks(bare: Celery) -> None:
    """Their message names the inner task's signature."""
    assert {"celery.map", "celery.starmap", "celery.chunks"} <= set(bare.tasks)

    @bare.task(name="a.task", shared=False)
    def body() -> None:
        """Never runs."""

    assert body.map([1]).kwargs["task"]["task"] == "a.task"


def test_a_time_without_zone_is_utc() -> None:
    """In Celery's messages, whatever the app's time zone."""
    import datetime as dt

    naive = dt.datetime(2031, 1, 1)  # noqa: DTZ001
    assert maybe_make_aware(naive) == naive.replace(tzinfo=dt.UTC)


@pytest.mark.django_db
def test_djangos_own_blocks_can_be_told_from_the_sites() -> None:
    """A test case's transaction is marked; the site's is not."""
    assert all(block._from_testcase for block in connection.atomic_blocks)
    with transaction.atomic():
        assert not connection.atomic_blocks[-1]._from_testcase


@pytest.mark.django_db(transaction=True)
def test_hooks_of_an_undone_savepoint_are_forgotten() -> None:
    """``run_on_commit`` is a list of (savepoints, hook, robust) that Django prunes."""
    with transaction.atomic():
        outer = connection.savepoint()
        with transaction.atomic():
            transaction.on_commit(len, robust=True)  # type: ignore[arg-type]
            ((savepoints, hook, robust),) = connection.run_on_commit
            assert (hook, robust) == (len, True)
            assert savepoints
            transaction.set_rollback(True)
        assert connection.run_on_commit == []
        connection.savepoint_commit(outer)


def test_redis_keeps_four_priorities_in_lists_of_their_own() -> None:
    """The names that a message of priority 3, 6 or 9 is pushed under."""
    assert (Channel.sep, tuple(Channel.priority_steps)) == ("\x06\x16", (0, 3, 6, 9))
