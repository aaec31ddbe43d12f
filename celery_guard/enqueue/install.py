"""Puts the guard between a Celery app and its broker."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from django.core.exceptions import ImproperlyConfigured
from kombu.utils.imports import symbol_by_name

from celery_guard.conf import guard_settings, use_default_queue
from celery_guard.enqueue.publish import guarded_sender, will_be_kept
from celery_guard.outbox.capture import CapturingProducer, Sender


class GuardedAMQP(AMQP):
    """Celery's message side with the capture, the lanes' queues and the lanes' routes."""

    app: Celery
    task_protocols: dict[int, Any]
    _rtable: Any

    def _create_task_sender(self) -> Sender:
        return guarded_sender(self.app, super()._create_task_sender())  # type: ignore[misc]

    @property
    def create_task_message(self) -> Any:
        """Celery's message builder, taken out just before the result backend is told.

        :raises ImproperlyConfigured: for Celery's first message protocol, which has no headers.
        """
        if self.app.conf.task_protocol != 2:
            raise ImproperlyConfigured("task_protocol must be 2: the guard needs message headers")
        quiet(self.app.backend)
        return functools.partial(self._build, self.task_protocols[2])

    def _build(
        self,
        build: Any,
        task_id: str,
        name: str,
        args: Any = None,
        kwargs: Any = None,
        *rest: Any,
        **options: Any,
    ) -> Any:
        _kept.set(will_be_kept(self.app, name, args or (), kwargs or {}, task_id))
        return build(task_id, name, args, kwargs, *rest, **options)

    def Queues(self, queues: Any, *args: Any, **options: Any) -> Any:  # noqa: N802
        """All queues of the app and the lanes, so that a worker without ``-Q`` serves them."""
        if self.app in _first:
            use_default_queue(self.app.conf.task_default_queue)
        found = super().Queues(queues, *args, **options)
        settings = guard_settings()
        for name in (*(lane.queue for lane in settings.lanes.values()), settings.control_queue):
            if name not in found:
                found.select_add(found.new_missing(name))
        return found

    def flush_routes(self) -> None:
        """The site's own routes win; after them a guarded task goes to its lane."""
        super().flush_routes()
        self._rtable = [*self._rtable, route_to_lane]


_first: list[Celery] = []


def route_to_lane(
    name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any
) -> dict[str, str] | None:
    """A Celery router: the queue of a guarded task's lane."""
    declaration = getattr(task, "guard", None)
    if declaration is None or any(options.get(o) for o in ("queue", "exchange", "routing_key")):
        return None
    return {"queue": guard_settings().lane(declaration.lane).queue}


def install(app: Celery) -> None:
    """Guard ``app``: idempotent, and done by itself for every app that has a guarded task.

    The first app of a process is the site's: its default queue is the lane ``medium``'s.
    """
    if not _first:
        _first.append(app)
    made = vars(app).get("amqp")
    if made is None:
        kind: Any = app.amqp_cls
        app.amqp_cls = _guarded(symbol_by_name(kind))  # type: ignore[assignment]
    elif not isinstance(made, GuardedAMQP):
        made.__class__ = _guarded(type(made))
        made.__dict__.pop("send_task_message", None)
        made.__dict__.pop("queues", None)
        made._rtable = None
        made.__dict__.pop("router", None)


def installed(app: Celery) -> bool:
    """Whether ``app``'s messages pass through the guard."""
    return isinstance(app.amqp, GuardedAMQP)


def _guarded(kind: type[AMQP]) -> type[AMQP]:
    if issubclass(kind, GuardedAMQP):
        return kind
    return GuardedAMQP if kind is AMQP else type(f"Guarded{kind.__name__}", (GuardedAMQP, kind), {})


# Whether the message that Celery builds just now goes to the outbox.
_kept: ContextVar[bool] = ContextVar("guard_kept", default=False)
_quietly: ContextVar[bool] = ContextVar("guard_quietly", default=False)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Inside, nobody subscribes to results; they are subscribed to when somebody waits."""
    token = _quietly.set(True)
    try:
        yield
    finally:
        _quietly.reset(token)


def quiet(backend: Any) -> None:
    """Keep the result backend off the network while messages are only captured.

    A subscription made at enqueue would make a dead result backend hang the request.
    """
    if "on_task_call" in vars(backend):
        return
    subscribe = backend.on_task_call

    def on_task_call(producer: Any, task_id: str) -> Any:
        if isinstance(producer, CapturingProducer) or _kept.get():
            return None
        return subscribe(producer, task_id)

    backend.on_task_call = on_task_call
    if (consumer := getattr(backend, "result_consumer", None)) is not None:
        _defer_subscriptions(consumer)


def _defer_subscriptions(consumer: Any) -> None:
    deferred: set[str] = set()
    subscribed: set[str] = set()
    consume_from, cancel_for = consumer.consume_from, consumer.cancel_for
    on_wait = consumer.on_wait_for_pending

    def consume_later(task_id: str) -> Any:
        if _quietly.get():
            return deferred.add(task_id)
        subscribed.add(task_id)
        return consume_from(task_id)

    def cancel_if_subscribed(task_id: str) -> Any:
        # Called when a result object goes, in whatever thread: no network for what never was.
        deferred.discard(task_id)
        if task_id in subscribed:
            subscribed.discard(task_id)
            return cancel_for(task_id)
        return None

    def on_wait_for_pending(*args: Any, **options: Any) -> Any:
        # Before the look at what is stored: a result that comes between the two is not missed.
        for task_id in list(deferred):
            deferred.discard(task_id)
            consume_later(task_id)
        return on_wait(*args, **options)

    consumer.consume_from = consume_later
    consumer.cancel_for = cancel_if_subscribed
    consumer.on_wait_for_pending = on_wait_for_pending
