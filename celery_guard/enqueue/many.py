"""Many jobs by one call.

What is true of all plain signatures of a task is asked once, not once a signature; anything else
goes the way that a call of its own goes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, cast

from celery import Celery, Signature

from celery_guard.conf import Mode
from celery_guard.enqueue.admission import places
from celery_guard.enqueue.bulk import Batch, batch, running_batch
from celery_guard.enqueue.call import Call, in_event_loop
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.faithful import check_faithful
from celery_guard.enqueue.request import in_user_transaction
from celery_guard.enqueue.rollout.reading import stage_of
from celery_guard.enqueue.steering.reading import switches
from celery_guard.enqueue.template import Template, template_of, untouched
from celery_guard.outbox.capture import Captured, capturing_everything, collection


def enqueue_many(signatures: Iterable[Any]) -> list[Any]:
    """Enqueue all ``signatures`` in one statement; return their handles in the same order.

    All or nothing. It pays from about ten jobs on.

    :raises EnqueueError: as :func:`batch` does.
    """
    with batch():
        opened = running_batch()
        assert opened is not None, "a batch is open"
        ways: dict[int, _Way | None] = {}
        return [_enqueue(signature, opened, ways) for signature in signatures]


def _enqueue(signature: Any, opened: Batch, ways: dict[int, _Way | None]) -> Any:
    # Composite signatures are of classes of their own.
    if type(signature) is not Signature or signature.options:
        return signature.apply_async()
    try:
        task: Any = signature.type
    except KeyError:
        return signature.apply_async()
    if (number := id(task)) not in ways:
        ways[number] = _way(task, opened)
    way = ways[number]
    if way is None or not way.is_open():
        return signature.apply_async()
    return way.enqueue(signature.args, signature.kwargs)


def _way(task: Any, opened: Batch) -> _Way | None:
    own = getattr(task.apply_async, "guard_own", None) is True
    if not own or not untouched(Signature.apply_async, "celery.canvas"):
        return None
    guarded, app = cast(Guarded, task), cast(Celery, task.app)
    usual = (
        not app.conf.task_always_eager
        and not in_event_loop()
        and collection() is None
        and capturing_everything() is None
        and not places.any_held()
    )
    template = template_of(guarded, app) if usual else None
    if template is None:
        return None
    # Outside a transaction every call has to ask whether another database is in one.
    inside = in_user_transaction(guarded.guard.alias)
    return _Way(guarded, app, template, opened, opened.put if inside else opened.add)


@dataclasses.dataclass(frozen=True, slots=True)
class _Way:
    """How plain calls of ``task`` go into the batch that is open."""

    task: Guarded
    app: Celery
    template: Template
    batch: Batch
    keep: Callable[[Guarded, Captured, Call], None]

    def is_open(self) -> bool:
        """Whether a call made now is one of those: the signatures may be made one after another."""
        return (
            self.batch.takes(self.task)
            and stage_of(self.task).mode is Mode.ON
            and not switches(self.task.guard.alias).ask_each_call
        )

    def enqueue(self, args: Any, kwargs: Any) -> Any:
        """What ``apply_async`` does."""
        task, args, kwargs = self.task, args or (), kwargs or {}
        check_faithful(task.name, args, kwargs)
        captured = self.template.fill(self.app, args, kwargs)
        call = Call()
        self.keep(task, captured, call)
        return task.guard_handle(captured, call)
