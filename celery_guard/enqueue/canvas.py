"""Groups, chains and chords, asked for where neither broker nor result backend may be touched.

Celery's canvas subscribes to results while it builds and counts a chord's members in the result
backend before it sends them. Here subscriptions wait until somebody waits for a result, the
members of a group are written in one statement, and a chord is frozen and started by a worker.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from celery import Celery
from celery.canvas import (  # type: ignore[attr-defined]
    _chain,
    _chord,
    group,
    maybe_signature,
)
from django.views.decorators.debug import sensitive_variables
from kombu.utils import json

from celery_guard.enqueue.bulk import batch
from celery_guard.enqueue.call import in_event_loop
from celery_guard.enqueue.faithful import check_faithful
from celery_guard.enqueue.grouping import apply_together
from celery_guard.enqueue.install import installed, quiet, quietly
from celery_guard.enqueue.publish import check_steps, guarded_task_called, will_be_kept
from celery_guard.enqueue.request import identity_of
from celery_guard.enqueue.template import untouched
from celery_guard.enqueue.tenants import acting_for
from celery_guard.errors import NotSerializable

CANVAS_TASK = "celery_guard.start_canvas"

_starting: ContextVar[bool] = ContextVar("guard_starting_canvas", default=False)


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Inside, chords start as Celery starts them."""
    token = _starting.set(True)
    try:
        yield
    finally:
        _starting.reset(token)


def _leaves(canvas: Any, app: Celery) -> Iterator[Any]:
    """The simple signatures in ``canvas``."""
    for part in _parts_of(canvas):
        # Canvases that came through JSON hold dicts.
        step: Any = maybe_signature(part, app)
        if isinstance(step, (_chord, group, _chain)):
            yield from _leaves(step, app)
        elif step is not None:
            yield step


def _parts_of(canvas: Any) -> list[Any]:
    if isinstance(canvas, _chord):
        return [*_tasks_of(canvas.tasks), canvas.body]
    return _tasks_of(canvas.tasks) if isinstance(canvas, (group, _chain)) else [canvas]


def _tasks_of(tasks: Any) -> list[Any]:
    return list(tasks.tasks if isinstance(tasks, group) else tasks)


def _kept(canvas: Any) -> Iterator[Any]:
    """The tasks of ``canvas`` whose messages would go to the outbox."""
    app = canvas.app
    for leaf in _leaves(canvas, app):
        if will_be_kept(app, leaf.task, leaf.args, leaf.kwargs):
            yield leaf


def _ours(canvas: Any) -> bool:
    app = canvas.app
    return (
        not app.conf.task_always_eager
        and not in_event_loop()
        and installed(app)
        and any(_kept(canvas))
    )


def _bulk(original: Callable[..., Any]) -> Callable[..., Any]:
    celerys = untouched(original, "celery.canvas")

    @sensitive_variables()
    @functools.wraps(original)
    def apply(self: Any, *args: Any, **options: Any) -> Any:
        if not _ours(self):
            return original(self, *args, **options)
        quiet(self.app.backend)
        with quietly(), batch():
            plain = celerys and type(self) is group and not options and not any(args)
            result = apply_together(self) if plain else None
            return original(self, *args, **options) if result is None else result

    return apply


def _frozen(original: Callable[..., Any]) -> Callable[..., Any]:
    @sensitive_variables()
    @functools.wraps(original)
    def apply_async(
        self: Any, args: Any = None, kwargs: Any = None, task_id: Any = None, **options: Any
    ) -> Any:
        if _starting.get() or not _ours(self):
            return original(self, args, kwargs, task_id=task_id, **options)
        quiet(self.app.backend)
        with quietly():
            return _start(self, args, kwargs, task_id, options)

    return apply_async


def _start(chord: Any, args: Any, kwargs: Any, task_id: Any, options: dict[str, Any]) -> Any:
    app = chord.app
    for client_only in ("producer", "connection", "publisher", "router", "result_cls"):
        options.pop(client_only, None)
    frozen = chord.clone(args, kwargs, **options)
    tenants = _checked(frozen, args or (), app)
    result = frozen.freeze(task_id)
    start = app.tasks[CANVAS_TASK]
    with acting_for(next(filter(None, tenants), "")):
        # Its one argument is the arguments of all members: what they hide must not be readable here.
        start.apply_async(
            (_as_json(frozen),), queue=_queue_of(frozen), argsrepr="(<canvas>,)", kwargsrepr="{}"
        )
    return result


def _checked(chord: Any, partial: Any, app: Celery) -> list[str]:
    """The tenants of the chord's members.

    What a direct publish refuses at once must not wait for a worker to be refused.
    """
    check_steps(app, dict(chord))
    tenants = []
    for member in _tasks_of(chord.tasks):
        first = _first_step(maybe_signature(member, app), app)
        task = None if first is None else guarded_task_called(app, first["task"])
        if first is not None and task is not None:
            arguments = first["args"] if first["immutable"] else (*partial, *first["args"])
            check_faithful(task.name, arguments, first["kwargs"])
            tenants.append(identity_of(task, arguments, first["kwargs"])["tenant"])
    return tenants


def _first_step(canvas: Any, app: Celery) -> Any:
    # It goes out with the chord, and has all its arguments; None where a header is empty.
    while isinstance(canvas, (_chord, group, _chain)):
        parts = _tasks_of(canvas.tasks)
        canvas = maybe_signature(parts[0], app) if parts else None
    return canvas


def _queue_of(chord: Any) -> Any:
    app = chord.app
    first = next(_kept(chord))
    task = guarded_task_called(app, first.task) or app.tasks[CANVAS_TASK]
    return first.options.get("queue") or task.lane_queue()


def _as_json(chord: Any) -> Any:
    # What travels is plain JSON; a round trip here makes it so, or raises here.
    try:
        return json.loads(json.dumps(dict(chord)))
    except (TypeError, ValueError) as error:
        raise NotSerializable(f"the canvas cannot be encoded: {error}") from error


def guard_canvas() -> None:
    """Wrap Celery's three composite signatures, once a process."""
    if not hasattr(group.apply_async, "__wrapped__"):
        group.apply_async = _bulk(group.apply_async)  # type: ignore[method-assign]
        _chain.run = _bulk(_chain.run)  # type: ignore[method-assign]
        _chord.apply_async = _frozen(_chord.apply_async)
