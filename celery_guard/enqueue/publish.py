"""The one place through which every task message of a Celery app passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from celery import Celery

from celery_guard.conf import Mode, guard_settings
from celery_guard.enqueue.bulk import running_batch
from celery_guard.enqueue.call import Call, calling, in_event_loop, running_call
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.faithful import check_faithful, signatures_in
from celery_guard.enqueue.hiding import hide
from celery_guard.enqueue.request import (
    check_database,
    enqueue,
    enqueue_plain,
    identity_of,
    in_user_transaction,
)
from celery_guard.enqueue.rollout.mode import choose, decide, gone
from celery_guard.enqueue.rollout.observing import saw_call
from celery_guard.enqueue.rollout.reading import stage_of
from celery_guard.outbox.capture import (
    Captured,
    CapturingProducer,
    Sender,
    capture,
    capturing_everything,
    collection,
)

_MAPS = frozenset({"celery.map", "celery.starmap", "celery.chunks"})


def guarded_sender(app: Celery, sender: Sender) -> Sender:
    """``sender``, but what is promised in a transaction goes to the outbox instead."""

    def send_task_message(producer: Any, name: str, message: Any, **options: Any) -> Any:
        args, kwargs, steps = message.body
        check_steps(app, steps)
        hide(app, guarded_task_called(app, name), message)
        task, mode = _guarded(app, name, message)
        if mode is Mode.OBSERVE and not in_event_loop():
            seen = cast(Guarded, guarded_task_called(app, name))
            saw_call(seen, message.headers["id"], args, kwargs, queue=options.get("queue"))
        if task is not None:
            serializer = options.get("serializer") or app.conf.task_serializer
            check_faithful(name, args, kwargs, serializer)
        if (kept := collection()) is not None:
            kept.append(capture(app, sender, name, message, options))
        elif task is not None and not in_event_loop():
            _enqueue(app, task, mode, sender, message, options)
        elif task is None and (using := plain_alias(app, name, kwargs)) is not None:
            check_database(using, name)
            enqueue_plain(capture(app, sender, name, message, options), using)
        else:
            if task is not None:
                identity_of(task, args, kwargs)
            # A signal's receiver may ask for other work while this message is sent.
            with calling(None):
                return _send(app, sender, producer, name, message, options)
        return None

    return send_task_message


def _guarded(app: Celery, name: str, message: Any) -> tuple[Guarded | None, Mode]:
    """The task if this message is to be a job, and under which mode."""
    task = guarded_task_called(app, name)
    if task is None or collection() is not None:
        return task, Mode.ON
    args, kwargs, _ = message.body
    mode = decide(task, message.headers["id"], args, kwargs, blind=in_event_loop())
    gone()
    return (task if mode.guards else None), mode


def _enqueue(
    app: Celery, task: Guarded, mode: Mode, sender: Sender, message: Any, options: Any
) -> None:
    call = running_call() or Call(fixed_id=True, mode=mode)
    # A signal's receiver may ask for other work while this message is made.
    with calling(None):
        captured = capture(app, sender, task.name, message, options)
    place(task, captured, call)


def place(task: Guarded, captured: Captured, call: Call) -> None:
    """Make ``captured`` a job: now, or at the end of the batch that is open here."""
    if (bulk := running_batch()) is None or not bulk.takes(task):
        call.enqueued = enqueue(task, captured, call)
    else:
        bulk.add(task, captured, call)


def check_steps(app: Celery, steps: object) -> None:
    """Refuse later steps of a canvas whose guarded tasks would get other arguments than given.

    :raises NotSerializable: naming the first such task.
    """
    for step in signatures_in(steps):
        if guarded_task_called(app, step["task"]) is not None:
            check_faithful(step["task"], step["args"] or (), step["kwargs"] or {})


def _send(app: Celery, sender: Sender, producer: Any, name: str, message: Any, options: Any) -> Any:
    if not isinstance(producer, CapturingProducer):
        return sender(producer, name, message, **options)
    with app.producer_or_acquire() as real:
        return sender(real, name, message, **options)


def guarded_task_called(app: Celery, name: str) -> Guarded | None:
    """The guarded task that ``name`` is in this app, or None."""
    # The registry itself: ``app.tasks`` would finalise an app that only sends by name.
    task = app._tasks.get(name)  # type: ignore[attr-defined]
    return cast(Guarded, task) if getattr(task, "guard", None) is not None else None


def plain_alias(app: Celery, name: str, kwargs: Mapping[str, Any]) -> str | None:
    """The database on which a plain message of the task ``name`` is kept now, or None."""
    if in_event_loop():
        return None
    if (using := capturing_everything()) is not None:
        return using
    if (inner := _mapped(app, name, kwargs)) is not None and stage_of(inner).mode.guards:
        return inner.guard.alias
    using = guard_settings().using
    everything = guard_settings().outbox.capture == "all"
    return using if everything and in_user_transaction(using) else None


def _mapped(app: Celery, name: str, kwargs: Mapping[str, Any]) -> Guarded | None:
    # One message for many calls of a guarded task: it has no key of its own, but its promise
    # belongs to the transaction like any other's.
    step = kwargs.get("task") if name in _MAPS else None
    return guarded_task_called(app, step["task"]) if isinstance(step, Mapping) else None


def will_be_kept(
    app: Celery,
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    task_id: str | None = None,
) -> bool:
    """Whether a message published here and now goes to the outbox, not to the broker.

    :param task_id: of the message that is just built; None for one that may come.
    """
    if collection() is not None:
        return True
    if in_event_loop():
        return False
    if (task := guarded_task_called(app, name)) is not None:
        if task_id is None:
            mode = choose(task, args, kwargs)
        else:
            mode = decide(task, task_id, args, kwargs)
        if mode.guards:
            return True
    return plain_alias(app, name, kwargs) is not None
