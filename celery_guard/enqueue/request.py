"""One captured message becomes one job, or finds the job that is already there."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from django.db import DatabaseError, connections, transaction

from celery_guard.conf import guard_settings
from celery_guard.enqueue.admission import places
from celery_guard.enqueue.admission.places import Place
from celery_guard.enqueue.call import Call, Enqueued
from celery_guard.enqueue.coalescing import Coalescing
from celery_guard.enqueue.declaration import NAME_LENGTH, Guarded
from celery_guard.enqueue.key import bind, coalesce_key_of, fingerprint_of, key_of, tenant_of
from celery_guard.enqueue.ticks import identity_of_tick, is_tick
from celery_guard.errors import KeyBusy, KeyConflict, WrongDatabase
from celery_guard.events import emit
from celery_guard.jobs.adding import KnownJob, NewJob, find_known, public_id_of
from celery_guard.jobs.deadlock import TRIES, is_deadlock, is_lock_timeout, pause_before_again
from celery_guard.jobs.states import RERUNNABLE, Reason
from celery_guard.outbox import hook, store
from celery_guard.outbox.capture import Captured
from celery_guard.outbox.envelope import Envelope

T = TypeVar("T")


def new_job(task: Guarded, captured: Captured, call: Call) -> NewJob:
    """The row that a captured message of a guarded task asks for.

    :raises TypeError: when the arguments do not fit the task.
    :raises MissingKey: when the key finds no value.
    :raises PayloadTooLarge: when the message is over the limit.
    """
    store.check_size(captured)
    identity = captured.identity or identity_of(task, captured.args, captured.kwargs)
    if captured.tick:
        identity = {**identity, **identity_of_tick(task, captured)}
    return NewJob(
        task=task.name,
        lane=lane_of(captured),
        public_id=captured.public_id or public_id_of(captured.task_id),
        reason=Reason.ETA if captured.eta else Reason.NEW,
        awaited=_is_awaited(task, captured, call),
        dependency=task.guard.dependency,
        mode=call.mode,
        **identity,
        **_put_off(task.guard.coalesce, _times(captured, call)),
    )


def _is_awaited(task: Guarded, captured: Captured, call: Call) -> bool:
    # A handle follows a superseded job to the one that answers it. So a burst of requests whose
    # results are kept, as is Celery's default, needs no message for each.
    return captured.awaited if task.guard.coalesce is None else _is_waited_for(captured, call)


def _put_off(rule: Coalescing | None, times: dict[str, Any]) -> dict[str, Any]:
    if rule is None:
        return times
    delay = max(rule.delay, times.get("delay", 0.0))
    return {**times, "delay": delay, "max_delay": rule.max_delay}


def identity_of(task: Guarded, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Key, fingerprint and tenant of a call.

    :raises TypeError: when the arguments do not fit the task.
    :raises MissingKey: when the key finds no value.
    """
    bound = bind(task, args, kwargs)
    return {
        "key": key_of(task, task.guard, bound),
        "coalesce_key": coalesce_key_of(task, task.guard, bound),
        "fingerprint": fingerprint_of(bound),
        "tenant": tenant_of(task, task.guard, bound),
    }


def plain_job(captured: Captured) -> NewJob:
    """The row that carries the message of an unguarded task."""
    return NewJob(
        task=captured.task[:NAME_LENGTH],
        lane=lane_of(captured),
        # Not the task's id: Celery sends as often as it is asked to, whatever the id.
        public_id=uuid.uuid4(),
        reason=Reason.ETA if captured.eta else Reason.NEW,
        plain=True,
        **_times(captured, Call()),
    )


def lane_of(captured: Captured) -> str:
    """The lane that the message's queue belongs to."""
    return guard_settings().lane_of_queue(captured.queue).name[:64]


def _times(captured: Captured, call: Call) -> dict[str, Any]:
    # Seconds count from the database's clock; only an absolute time is taken as given.
    due = {"delay": call.delay} if call.delay else {"due_at": captured.eta}
    if call.expires_in is not None:
        return {**due, "expires_in": call.expires_in}
    return {**due, "expires_at": captured.expires}


def enqueue(task: Guarded, captured: Captured, call: Call) -> Enqueued:
    """Write the job in the open transaction, or answer with the one that has its key.

    :raises KeyConflict: when the key names a job with other arguments.
    :raises KeyBusy: when another transaction holds the key for longer than the lock time-out.
    :raises WrongDatabase: when a transaction is open, but not on the ledger's database.
    """
    using = task.guard.alias
    check_database(using, task.name)
    new = new_job(task, captured, call)
    what = f"{new.task}: the key {new.key!r}"
    place = None
    if store.ends_places(using):
        place = places.place_for(using, new.task, new.lane, new.tenant)
    enqueued = retried([using], lambda: _insert_or_get(task, new, captured, call, place), what)
    if enqueued.created:
        if place is None:
            places.consume(using, [new])
        else:
            places.consumed(place)
    hook.note(using, new.lane)
    return enqueued


def enqueue_plain(captured: Captured, using: str) -> None:
    """Store the message of an unguarded task in the open transaction."""
    store.check_size(captured)
    new = plain_job(captured)
    retried([using], lambda: store.insert(using, new, captured))
    hook.note(using, new.lane)


def _insert_or_get(
    task: Guarded, new: NewJob, captured: Captured, call: Call, place: Place | None
) -> Enqueued:
    using, kept = task.guard.alias, None if place is None else place.id
    for _ in range(TRIES):
        if (job_id := store.insert(using, new, captured, kept)) is not None:
            if job_id < 0:
                places.tell_over(using, 1)
            return Enqueued(
                job_id=abs(job_id),
                public_id=new.public_id,
                task_id=captured.task_id,
                created=True,
                using=using,
            )
        # Nothing there either: the holder was purged between the two statements; insert again.
        if (known := find_known(using, new)) is not None:
            return known_job(task, new, captured, call, known, using)
    raise KeyBusy(f"{task.name}: the key {new.key!r} comes and goes")


def known_job(
    task: Guarded, new: NewJob, captured: Captured, call: Call, known: KnownJob, using: str
) -> Enqueued:
    """Answer a call whose key is taken: the same work, never a second job.

    :raises KeyConflict: when it is not the same work.
    """
    refuse_conflict(new, known)
    anew = known.state in RERUNNABLE and _runs_anew(task, captured)
    if anew and store.rerun(using, known.id, new, captured):
        # The row is now this call's: its message, its times, its canvas.
        task_id = captured.task_id
    elif _is_waited_for(captured, call) and known.public_id != new.public_id:
        _echo(new, captured, known, using)
        task_id = captured.task_id
    else:
        # Somebody else may just have made it run anew, under another id.
        task_id = _task_id_of((find_known(using, new) or known) if anew else known)
    emit("enqueue.duplicate", task=task.name, job=str(known.public_id), state=known.state)
    return Enqueued(
        job_id=known.id, public_id=known.public_id, task_id=task_id, created=False, using=using
    )


def _runs_anew(task: Guarded, captured: Captured) -> bool:
    # A second beat repeats the tick, it does not ask for another run.
    return task.guard.on_failed == "rerun" and not is_tick(task, captured)


def refuse_conflict(new: NewJob, known: KnownJob) -> None:
    """Refuse a key, or a task id, that names other work.

    :raises KeyConflict: naming the job that has it.
    """
    if (known.task, known.fingerprint) != (new.task, new.fingerprint):
        same_id = known.public_id == new.public_id
        name = f"task id {new.public_id}" if same_id else f"key {new.key!r}"
        what = "with other arguments" if known.task == new.task else f"of {known.task}"
        raise KeyConflict(f"{new.task}: the {name} belongs to job {known.public_id} {what}")


def _task_id_of(known: KnownJob) -> str:
    # A caller may have named the task, and a rerun has its own call's id.
    if known.envelope is None:
        return str(known.public_id)
    return str(Envelope.decode(known.envelope).headers["id"])


def _is_waited_for(captured: Captured, call: Call) -> bool:
    # A kept result alone is waited for by the handle, and the handle can name the other job.
    return captured.canvas or (call.fixed_id and captured.awaited)


def _echo(new: NewJob, captured: Captured, known: KnownJob, using: str) -> None:
    # Somebody waits for this very task id: a row of its own that is answered by the survivor.
    echo = NewJob(
        task=new.task,
        lane=new.lane,
        public_id=new.public_id,
        fingerprint=new.fingerprint,
        tenant=new.tenant,
        reason=Reason.ECHO,
        awaited=True,
        survivor_id=known.id,
    )
    store.insert(using, echo, captured)


def check_database(using: str, task: str) -> None:
    """Refuse a call inside a transaction that could roll back without the job.

    :raises WrongDatabase: when another alias is in a transaction and the ledger's is not.
    """
    if in_user_transaction(using):
        return
    for connection in connections.all(initialized_only=True):
        if in_user_transaction(connection.alias):
            raise WrongDatabase(
                f"{task}: a transaction is open on {connection.alias!r}, but the task's ledger is "
                f"on {using!r}: enqueue after it, open one on {using!r} too, or declare "
                f"using={connection.alias!r}"
            )


def in_user_transaction(using: str) -> bool:
    """Whether the site (not only a Django test case) has a transaction open on ``using``."""
    connection = connections[using]
    if not connection.in_atomic_block:
        # By hand: with autocommit off, everything since the last commit is one transaction.
        return connection.connection is not None and not connection.autocommit
    return any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)


def retried(aliases: Sequence[str], write: Callable[[], T], what: str = "") -> T:
    """Run ``write`` again where the database asks for it and nothing of the caller is lost.

    :param what: names the task and its key in the error.
    :raises KeyBusy: when a lock was waited for too long; for a deadlock inside a caller's
        transaction, which only the caller can repeat.
    """
    for attempt in range(TRIES):
        try:
            return write()
        except DatabaseError as error:
            atomic = [using for using in aliases if connections[using].in_atomic_block]
            for using in atomic:
                # The database may have dropped everything so far: nothing more may be written
                # as if it stood, even if the caller goes on.
                transaction.set_rollback(True, using=using)
            # One that was opened by hand can't be repeated here either.
            inside = atomic or [using for using in aliases if in_user_transaction(using)]
            again = is_deadlock(error)
            if not again and not is_lock_timeout(error):
                raise
            if inside or not again or attempt == TRIES - 1:
                raise _busy(what, error) from error
            pause_before_again(attempt)
    raise AssertionError("unreachable")


def _busy(what: str, error: DatabaseError) -> KeyBusy:
    # The first line: what follows is the guard's own SQL, and stays in the cause.
    said = next(iter(str(error).strip().splitlines()), "")
    return KeyBusy(f"{what}: {KeyBusy.__doc__} ({said})".removeprefix(": "))
