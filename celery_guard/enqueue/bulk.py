"""Many jobs in one statement."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar

from django.db import connections, transaction

from celery_guard.enqueue.admission import places
from celery_guard.enqueue.call import Call, Enqueued
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.request import (
    check_database,
    known_job,
    new_job,
    refuse_conflict,
    retried,
)
from celery_guard.errors import EnqueueError, KeyBusy
from celery_guard.jobs.adding import KnownJob, NewJob, find_known
from celery_guard.outbox import hook, store
from celery_guard.outbox.capture import Captured


@dataclasses.dataclass(frozen=True, slots=True)
class _Item:
    task: Guarded
    captured: Captured
    call: Call
    new: NewJob


Group = tuple[str, list[_Item]]


class Batch:
    """Enqueueing calls that are written together, one statement per database."""

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._depths = _depths()

    def takes(self, task: Guarded) -> bool:
        """Whether a call made here may wait for the end of the batch.

        One inside a transaction or savepoint that was opened since may not: it has to go
        where that goes.
        """
        using = task.guard.alias
        return len(connections[using].atomic_blocks) == self._depths.get(using, 0)

    def is_here(self) -> bool:
        """Whether all databases are in the transactions in which the batch was opened."""
        return _depths() == self._depths

    def add(self, task: Guarded, captured: Captured, call: Call) -> None:
        """Take one call in; its faults are raised here, before anything is written."""
        check_database(task.guard.alias, task.name)
        self.put(task, captured, call)

    def put(self, task: Guarded, captured: Captured, call: Call) -> None:
        """:meth:`add`, where the task's database is known to be in a transaction."""
        self._items.append(_Item(task, captured, call, new_job(task, captured, call)))

    def write(self) -> None:
        """Write all jobs or none, and answer their handles.

        :raises KeyConflict: for the first key that names a job with other arguments.
        """
        by_alias = itertools.groupby(sorted(self._items, key=_alias), key=_alias)
        groups = [(using, list(items)) for using, items in by_alias]
        if groups:
            retried([using for using, _ in groups], lambda: _write(groups), _named(self._items))
        for using, items in groups:
            places.consume(
                using, [i.new for i in items if i.call.enqueued and i.call.enqueued.created]
            )
            hook.note(using, *{item.new.lane for item in items})


def _depths() -> dict[str, int]:
    open_ones = connections.all(initialized_only=True)
    return {c.alias: len(c.atomic_blocks) for c in open_ones if c.atomic_blocks}


def _named(items: Sequence[_Item]) -> str:
    # Which of them is busy the database does not say.
    keys = [f"{i.new.task} {i.new.key!r}" for i in items[:3]]
    return f"one of {len(items)} keys ({', '.join(keys)}{', …' if len(items) > 3 else ''})"


def _alias(item: _Item) -> str:
    return str(item.task.guard.alias)


def _write(groups: list[Group]) -> None:
    (using, items), *others = groups
    # In the caller's transaction a savepoint would cost two round trips; taking back by hand
    # what one statement wrote needs none and leaves as little behind.
    inside = connections[using].in_atomic_block
    with contextlib.nullcontext() if inside else transaction.atomic(using=using):
        inserted = store.insert_many(using, [(item.new, item.captured) for item in items])
        try:
            known = [_find(using, item, inserted) for item in items]
            if others:
                _write(others)
        except EnqueueError:
            if inside:
                store.take_back(using, inserted.values())
            raise
        # From here on nothing is refused, so what is changed now needs no taking back.
        for item, found in zip(items, known, strict=True):
            _answer(using, item, inserted.get(item.new.public_id), found)


def _find(using: str, item: _Item, inserted: Mapping[uuid.UUID, int]) -> KnownJob | None:
    if item.new.public_id in inserted:
        return None
    known = find_known(using, item.new)
    if known is None:
        raise KeyBusy(f"{item.new.task}: the key {item.new.key!r} comes and goes")
    refuse_conflict(item.new, known)
    return known


def _answer(using: str, item: _Item, job_id: int | None, known: KnownJob | None) -> None:
    new, captured, call = item.new, item.captured, item.call
    if known is not None:
        call.came_to(known_job(item.task, new, captured, call, known, using))
    elif job_id is not None:
        call.came_to(
            Enqueued(
                job_id=job_id,
                public_id=new.public_id,
                task_id=captured.task_id,
                created=True,
                using=using,
            )
        )


_batch: ContextVar[Batch | None] = ContextVar("guard_batch", default=None)


def running_batch() -> Batch | None:
    """The batch that is open in this context, if any."""
    return _batch.get()


@contextlib.contextmanager
def batch() -> Iterator[None]:
    """Write all jobs enqueued inside in one statement at the end; nothing if the block raises.

    Handles got inside know their job (``created``, ``public_id``) once the block has ended.
    A call inside a transaction that was opened in the block is written at once, since it must
    share that transaction's fate. (Savepoints made by hand are not noticed: use ``atomic``.)

    :raises EnqueueError: at the call, or at the end of the block for a key that is taken.
    """
    if (outer := running_batch()) is not None and outer.is_here():
        yield  # The outer batch writes.
        return
    opened = Batch()
    token = _batch.set(opened)
    try:
        yield
    finally:
        _batch.reset(token)
    opened.write()


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Inside, a call is written when it is made, whatever batch is open around it."""
    token = _batch.set(None)
    try:
        yield
    finally:
        _batch.reset(token)
