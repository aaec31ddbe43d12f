"""The fallback: while the broker is away, the site itself runs a job that it has just enqueued.

It is a job like any other: committed first, then claimed, run and ended as by a worker, so nothing
runs twice when the relay comes back at the same moment. It runs in a thread with a connection of
its own: the request waits for it for a while, and then goes on without it. Nobody but the ledger is told of the
end; whoever waits through Celery is told by a worker, once there is a broker.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from celery import current_task
from django.db import Error as DatabaseError
from django.db import connections, transaction

from celery_guard.conf import guard_settings
from celery_guard.enqueue.admission.known import is_known
from celery_guard.enqueue.admission.retry_after import spread
from celery_guard.enqueue.bulk import running_batch
from celery_guard.enqueue.call import in_event_loop
from celery_guard.enqueue.handle import JobHandle
from celery_guard.enqueue.request import identity_of, in_user_transaction
from celery_guard.enqueue.rollout import bounds
from celery_guard.enqueue.rollout.bounds import Spent
from celery_guard.enqueue.rollout.models import Fallback
from celery_guard.errors import AdmissionRefused
from celery_guard.events import emit
from celery_guard.jobs import claiming
from celery_guard.jobs.models import Job
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.states import State
from celery_guard.outbox.capture import capturing_everything, collection
from celery_guard.relay.away import is_away
from celery_guard.run.job import Runnable
from celery_guard.run.message import Message, opened, traced
from celery_guard.run.owner import owner
from celery_guard.run.take import Inline

REASON = "fallback"
"""The reason of a refusal past the bounds."""


def falls_back(task: Runnable) -> bool:
    """Whether a new job of ``task`` is to be run here and now.

    Not inside a transaction, whose commit must come first, nor in a worker, whose work is owed
    and can wait.
    """
    guard, fallback = task.guard, guard_settings().rollout.fallback
    if not guard.fallback or guard.lane not in fallback.lanes or in_event_loop():
        return False
    if running_batch() or collection() is not None or capturing_everything() or _in_a_task():
        return False
    return not in_user_transaction(guard.alias) and is_away(guard.alias, guard.lane, fallback.after)


def _in_a_task() -> bool:
    return bool(cast(Any, current_task))


def serve(
    task: Runnable, args: Sequence[Any], kwargs: Mapping[str, Any], enqueue: Callable[[], JobHandle]
) -> JobHandle:
    """Enqueue a job and run it, within the bounds; the handle shows how far it came in time.

    A call whose job is there already is never refused.

    :param enqueue: writes the job, and commits it.
    :raises AdmissionRefused: past the bounds; nothing was written.
    """
    use = _begin(task)
    if isinstance(use, Spent):
        _refuse_unless_known(task, args, kwargs, use)
        return enqueue()
    try:
        handle = enqueue()
        message = use.message_of(handle)
    except BaseException:
        use.end()
        raise
    if message is None:
        use.end()
    else:
        _run(use, message)
    return handle


def _begin(task: Runnable) -> Use | Spent:
    # First this process' own count: a body that has lost its slot may still be at work in it.
    if not _seats.take():
        return Spent(limit=bounds.CONCURRENCY, wait=guard_settings().rollout.fallback.time)
    try:
        slot = bounds.take(task.guard.alias, task=task.name, lane=task.guard.lane)
    except BaseException:
        _seats.free()
        raise
    if isinstance(slot, Spent):
        _seats.free()
        return slot
    return Use(task, slot)


def _refuse_unless_known(
    task: Runnable, args: Sequence[Any], kwargs: Mapping[str, Any], spent: Spent
) -> None:
    if is_known(task, identity_of(task, args, kwargs), task.guard.alias):
        return
    later = spread(spent.wait)
    facts: dict[str, Any] = {"task": task.name, "lane": task.guard.lane, "reason": REASON}
    emit("enqueue.refused", **facts, retry_after=round(later, 1))
    raise AdmissionRefused(REASON, spent.limit, later)


def _run(use: Use, message: Message) -> None:
    if connections[use.using].in_atomic_block:
        # A test case's transaction, which no other connection could look into.
        use.run(message)
        return
    thread = threading.Thread(target=use.run_apart, args=(message,), name="guard-fallback")
    thread.daemon = True
    thread.start()
    thread.join(guard_settings().rollout.fallback.time)
    if thread.is_alive():
        emit("run.fallback_slow", logging.WARNING, task=message.task, job=message.id)


class Use:
    """One slot in use: from the moment it is taken until it is given back."""

    def __init__(self, task: Runnable, slot: int) -> None:
        self.using = task.guard.alias
        self._task = task
        self._slot = slot
        self._job: NamedJob | None = None
        self._claimed = False

    def message_of(self, handle: JobHandle) -> Message | None:
        """The message of the handle's job; None where there is nothing to run."""
        fallback = guard_settings().rollout.fallback
        jobs = Job.objects.using(self.using).filter(public_id=handle.public_id)
        # Demoted by its admission, it waits there for its turn.
        waiting = jobs.filter(state=State.WAITING, lane__in=fallback.lanes, message__isnull=False)
        row = waiting.values_list("pk", "message__body", "message__envelope").first()
        if row is None:
            return None
        self._job = NamedJob(row[0], handle.public_id)
        return opened(
            self._task.name, bytes(row[1]), row[2], self._job, f"web@{socket.gethostname()}"
        )

    def run_apart(self, message: Message) -> None:
        """:meth:`run`, in a thread of its own."""
        try:
            self.run(message)
        finally:
            connections.close_all()

    def run(self, message: Message) -> None:
        """Run the job of ``message`` as a worker would, and give the slot back."""
        inline = Inline(claim=self._claim, lease=guard_settings().rollout.fallback.lease)
        try:
            # Whoever waits is told by a worker: the chord, the errbacks, the result backend.
            untold = {"errbacks": None, "chord": None, "guard_inline": inline}
            traced(self._task.app, message, tell=False, **untold)
        except Exception as error:  # noqa: BLE001 - a hook of the site's; the job has its end
            emit("run.fallback_broken", logging.ERROR, task=message.task, why=repr(error))
        finally:
            self.end()

    def _claim(self, job: NamedJob) -> claiming.Claim | None:
        lease = guard_settings().rollout.fallback.lease
        public_id = cast(uuid.UUID, job.public_id)
        with transaction.atomic(using=self.using):
            claim = claiming.claim_directly(self.using, job, owner=owner(), lease=lease)
            # In one transaction, the slot second: it outlasts the claim's lease.
            if claim is not None and not bounds.keep(self.using, self._slot, public_id):
                transaction.set_rollback(True, using=self.using)
                return None
        self._claimed = claim is not None
        return claim

    def end(self) -> None:
        """Give the slot back, and say what came of it."""
        try:
            outcome = self._outcome()
            bounds.give_back(self.using, self._slot, outcome)
        except DatabaseError as error:
            # It is over by itself after a lease.
            emit("run.fallback_kept", logging.WARNING, using=self.using, why=str(error).strip())
            outcome = Fallback.LOST
        finally:
            _seats.free()
        facts: dict[str, Any] = {
            "task": self._task.name,
            "lane": self._task.guard.lane,
            "using": self.using,
        }
        emit("run.fell_back", **facts, outcome=outcome)

    def _outcome(self) -> str:
        if not self._claimed or self._job is None:
            return Fallback.UNUSED
        state = self._job.row(self.using).values_list("state", flat=True).first()
        return state or Fallback.LOST


class _Seats:
    """How many uses are under way in this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """A forked child has none of its parent's threads."""
        self._lock = threading.Lock()
        self._taken = 0

    def take(self) -> bool:
        """Count one more, if there may be one more."""
        with self._lock:
            free = self._taken < guard_settings().rollout.fallback.concurrency
            self._taken += free
        return free

    def free(self) -> None:
        """Count one less."""
        with self._lock:
            self._taken -= 1


_seats = _Seats()
os.register_at_fork(after_in_child=_seats.forget)
