"""Many jobs in one statement."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar

from django.db import connections, transaction
from django.views.decorators.debug import sensitive_variables

from celery_guard.enqueue.admission import places
from celery_guard.enqueue.call import Call, Enqueued
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.draft import Draft, Item
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

Pending = Item | Draft
Group = tuple[str, list[Pending]]


class Batch:
    """Enqueueing calls that are written together, one statement per database."""

    def __init__(self) -> None:
        self._pending: list[Pending] = []
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
        self._pending.append(Item(task, captured, call, new_job(task, captured, call)))

    def put_draft(self, draft: Draft) -> None:
        """:meth:`put` for a call that is known so far by its draft only."""
        self._pending.append(draft)

    @sensitive_variables()
    def write(self) -> None:
        """Write all jobs or none, and answer their handles.

        :raises KeyConflict: for the first key that names a job with other arguments.
        """
        by_alias: dict[str, list[Pending]] = {}
        for one in self._pending:
            by_alias.setdefault(one.using, []).append(one)
        groups = sorted(by_alias.items())
        if groups:
            retried([using for using, _ in groups], lambda: _write(groups), _named(self._pending))
        for using, pending in groups:
            if places.any_held():
                places.consume(using, [one.item().new for one in pending if _is_created(one)])
            hook.note(using, *{one.lane for one in pending})


def _depths() -> dict[str, int]:
    open_ones = connections.all(initialized_only=True)
    return {c.alias: len(c.atomic_blocks) for c in open_ones if c.atomic_blocks}


def _named(pending: Sequence[Pending]) -> str:
    # Which of them is busy the database does not say.
    keys = [f"{one.task.name} {one.key!r}" for one in pending[:3]]
    return f"one of {len(pending)} keys ({', '.join(keys)}{', …' if len(pending) > 3 else ''})"


def _is_created(one: Pending) -> bool:
    # A draft stays one unless its key was taken.
    return isinstance(one, Draft) or bool(one.call.enqueued and one.call.enqueued.created)


def _write(groups: list[Group]) -> None:
    (using, pending), *others = groups
    # In the caller's transaction a savepoint would cost two round trips; taking back by hand
    # what one statement wrote needs none and leaves as little behind.
    inside = connections[using].in_atomic_block
    with contextlib.nullcontext() if inside else transaction.atomic(using=using):
        inserted = _insert(using, pending)
        try:
            known = _find_others(using, pending, inserted)
            if others:
                _write(others)
        except EnqueueError:
            if inside:
                store.take_back(using, inserted.values())
            raise
        # From here on nothing is refused, so what is changed now needs no taking back.
        for n, one in enumerate(pending):
            # The handle of a draft says from the beginning what it is told here.
            if isinstance(one, Item):
                one.call.came_to(_outcome(using, one, inserted.get(n), known.get(n)))


def _insert(using: str, pending: list[Pending]) -> dict[int, int]:
    """Write what can be written; return the ids of the new jobs by their number in ``pending``."""
    if (drafts := _alike(using, pending)) is not None:
        order = sorted(range(len(drafts)), key=lambda n: drafts[n].key or "")
        records = [(n, drafts[n].record) for n in order]
        return store.insert_records(using, drafts[0].common.shared, records)
    pending[:] = items = [one.item() for one in pending]
    ids = store.insert_many(using, [(item.new, item.captured) for item in items])
    found = ((n, ids.get(item.new.public_id)) for n, item in enumerate(items))
    return {n: job_id for n, job_id in found if job_id is not None}


def _alike(using: str, pending: list[Pending]) -> list[Draft] | None:
    """``pending``, if all of it is drafts that share what is shared, and the database reads them."""
    first = pending[0]
    if not isinstance(first, Draft) or not store.reads_records(using):
        return None
    common = first.common
    drafts = [one for one in pending if isinstance(one, Draft) and one.common is common]
    return drafts if len(drafts) == len(pending) else None


def _find_others(
    using: str, pending: list[Pending], inserted: Mapping[int, int]
) -> dict[int, KnownJob]:
    known = {}
    for n in range(len(pending)):
        if n not in inserted:
            pending[n] = item = pending[n].item()
            known[n] = _find(using, item.new)
            refuse_conflict(item.new, known[n])
    return known


def _find(using: str, new: NewJob) -> KnownJob:
    if (known := find_known(using, new)) is None:
        raise KeyBusy(f"{new.task}: the key {new.key!r} comes and goes")
    return known


def _outcome(using: str, item: Item, job_id: int | None, known: KnownJob | None) -> Enqueued:
    new, captured = item.new, item.captured
    if known is not None:
        return known_job(item.task, new, captured, item.call, known, using)
    assert job_id is not None, "what was not found was inserted"
    return Enqueued(
        job_id=job_id,
        public_id=new.public_id,
        task_id=captured.task_id,
        created=True,
        using=using,
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
