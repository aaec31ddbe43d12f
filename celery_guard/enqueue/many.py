"""Many jobs by one call.

What is true of all plain signatures of a task is asked once, not once a signature; anything else
goes the way that a call of its own goes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, cast

from celery import Celery, Signature
from django.views.decorators.debug import sensitive_variables

from celery_guard.enqueue.admission import places
from celery_guard.enqueue.alone import is_on, is_usual
from celery_guard.enqueue.bulk import Batch, batch, running_batch
from celery_guard.enqueue.call import Call
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.draft import Common, common_of, fresh_ids
from celery_guard.enqueue.faithful import check_faithful
from celery_guard.enqueue.handle import JobHandle, handles_of
from celery_guard.enqueue.request import check_database, in_user_transaction
from celery_guard.enqueue.template import Template, template_of, untouched

_IDS_AT_ONCE = 100


@sensitive_variables()
def enqueue_many(signatures: Iterable[Any]) -> list[Any]:
    """Enqueue all ``signatures`` in one statement; return their handles in the same order.

    All or nothing. It pays from about ten jobs on.

    :raises EnqueueError: as :func:`batch` does.
    """
    with batch():
        opened = running_batch()
        assert opened is not None, "a batch is open"
        ways = Ways(opened, together=isinstance(signatures, list | tuple))
        return [ways.enqueue(signature) for signature in signatures]


class Ways:
    """How the signatures of one call go into the batch that is open, for each task.

    ``together`` says that nothing of the site's runs between one and the next, as it does where they
    are made one after another: it could open a transaction, or take so long that a switch turns.
    ``place`` are the options that a group gives its members.
    """

    def __init__(
        self, opened: Batch, *, together: bool, place: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self._batch = opened
        self._together = together
        self._place = place
        self._ways: dict[int, Way | None] = {}

    def enqueue(self, signature: Any) -> Any:
        """What ``signature.apply_async`` does."""
        way = self.of(signature)
        if way is None:
            return signature.apply_async()
        return way.enqueue(signature["args"], signature["kwargs"])

    def of(self, signature: Any) -> Way | None:
        """The way that is open for ``signature``; None if it has to go its own."""
        # Composite signatures are of classes of their own.
        if type(signature) is not Signature or signature["options"]:
            return None
        try:
            task: Any = signature.type
        except KeyError:
            return None
        if (number := id(task)) not in self._ways:
            self._ways[number] = self._way(task)
        way = self._ways[number]
        return way if way is None or self._together or way.is_open() else None

    def _way(self, task: Any) -> Way | None:
        template = _template(task)
        if template is None:
            return None
        guarded, app = cast(Guarded, task), cast(Celery, task.app)
        using = guarded.guard.alias
        # Outside a transaction it has to be asked whether another database is in one.
        inside = in_user_transaction(using)
        if not inside:
            check_database(using, guarded.name)
        common = common_of(guarded, app, template, self._place)
        ask = not inside and not self._together
        handle_of = handles_of(task) if self._together else task.AsyncResult
        way = Way(guarded, app, template, self._batch, common, _endless_ids(), handle_of, ask)
        return way if way.is_open() else None


def _template(task: Any) -> Template | None:
    """The template of plain calls of ``task``, None if each call has to be made by itself."""
    own = getattr(task.apply_async, "guard_own", None) is True
    if not own or not untouched(Signature.apply_async, "celery.canvas"):
        return None
    app = cast(Celery, task.app)
    usual = is_usual(app) and not places.any_held()
    return template_of(cast(Guarded, task), app) if usual else None


def _endless_ids() -> Iterator[str]:
    while True:
        yield from fresh_ids(_IDS_AT_ONCE)


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """How plain calls of ``task`` go into the batch that is open."""

    task: Guarded
    app: Celery
    template: Template
    batch: Batch
    common: Common
    ids: Iterator[str]
    handle_of: Callable[[str], JobHandle]
    ask_each_call: bool

    def is_open(self) -> bool:
        """Whether a call made now is one of those."""
        return self.batch.takes(self.task) and is_on(self.task)

    def enqueue(self, args: Any, kwargs: Any) -> Any:
        """What ``apply_async`` does."""
        task, args, kwargs = self.task, args or (), kwargs or {}
        if self.ask_each_call:
            check_database(task.guard.alias, task.name)
        if (draft := self.common.draft(next(self.ids), args, kwargs)) is not None:
            self.batch.put_draft(draft)
            return draft.made_handle(self.handle_of)
        check_faithful(task.name, args, kwargs)
        captured = self.template.fill(self.app, args, kwargs)
        call = Call()
        self.batch.put(task, captured, call)
        return task.guard_handle(captured, call)

    def join(self, args: Any, kwargs: Any, index: int) -> Any:
        """What a group does with its member number ``index``."""
        task, args, kwargs = self.task, args or (), kwargs or {}
        task_id = next(self.ids)
        if (draft := self.common.draft(task_id, args, kwargs, index)) is not None:
            self.batch.put_draft(draft)
        else:
            check_faithful(task.name, args, kwargs)
            place = {**self.common.place, "group_index": index}
            captured = self.template.fill(self.app, args, kwargs, task_id, place)
            self.batch.put(task, captured, Call(fixed_id=True))
        return self.handle_of(task_id)
