"""One attempt at a job, as its body sees it."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from django.db import connections, transaction
from kombu.utils import json as kombu_json

from celery_guard.conf import guard_settings
from celery_guard.enqueue.declaration import Guarded
from celery_guard.errors import Cancelled, EffectInTransaction, GuardError, LeaseLost
from celery_guard.faults import fault_point
from celery_guard.jobs import claiming, idling, progress, running
from celery_guard.jobs.following import digest
from celery_guard.jobs.named import NamedJob
from celery_guard.relay.limits.rules import Rules
from celery_guard.run.heartbeat import heart
from celery_guard.run.hooks import Hooks
from celery_guard.run.owner import owner
from celery_guard.run.provider_key import provider_key
from celery_guard.run.unseen import veiled
from celery_guard.settle.moves import Wish
from celery_guard.settle.naming import NAME_LENGTH, item_of, name_fault
from celery_guard.settle.perform import Call, Find, Performance
from celery_guard.settle.provider import Provider
from celery_guard.settle.states import Recovery

if TYPE_CHECKING:
    from celery_guard.run.outcome import Retry, Succeeded


class Runnable(Guarded, Protocol):
    """A guarded task, as this room needs it."""

    backend: Any

    @property
    def app(self) -> Any:
        """The Celery app that the task is bound to."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """The right to call a dependency now, under the name by which its store knows it."""

    rules: Rules
    name: str


class CurrentJob:
    """One attempt at a job, as its body sees it.

    ``fence`` names this attempt to stores that can compare it; ``failures`` is how much of the
    budget earlier attempts used up; ``lost`` becomes True when a heartbeat learns that the job
    is no longer held here: whatever the body still writes will not be kept. ``cancel_asked``
    becomes True when it learns that somebody wants the job to stop.
    """

    __slots__ = (
        "_claim",
        "asked",
        "beaten",
        "began",
        "blamed",
        "cancel_asked",
        "exhausted",
        "finished",
        "finishing",
        "hooks",
        "lease",
        "lost",
        "nested",
        "permits",
        "reported",
        "request",
        "stranded",
        "task",
        "told",
    )

    def __init__(
        self, task: Runnable, claim: claiming.Claim, *, lease: float, nested: bool
    ) -> None:
        self.task = task
        self.request = task.request
        self.lease = lease
        self.lost = False
        self.cancel_asked = False
        self.reported = 0.0
        # The newest word alone, put in by the body and taken out by the heart: both at one stroke.
        self.told: collections.deque[progress.Told] = collections.deque(maxlen=1)
        self.beaten = 0.0
        # For the length of the attempt, which no clock that is set may change.
        self.began = time.monotonic()
        self._claim = claim
        # A transaction that is not the attempt's own surrounds it: a test case, an eager call.
        self.nested = nested
        self.finishing: Succeeded | Retry | None = None
        self.finished: Succeeded | None = None
        # Of the transaction with its end, until that is known to be committed.
        self.hooks: Hooks | None = None
        self.asked: Retry | None = None
        self.exhausted: BaseException | None = None
        # Held now, and kept up with the lease; what was last blamed on one of their dependencies.
        self.permits: set[Permit] = set()
        self.blamed: BaseException | None = None
        self.stranded: list[tuple[int, Any, BaseException]] = []

    @property
    def hold(self) -> running.Hold:
        """The right to settle the job."""
        return self._claim.hold

    @property
    def claim(self) -> claiming.Claim:
        """The job as it was claimed."""
        return self._claim

    @property
    def using(self) -> str:
        """The database of the job."""
        return self._claim.hold.using

    @property
    def id(self) -> int:
        """The row; use ``public_id`` for anything that is stored or shown."""
        return self._claim.hold.job_id

    @property
    def row(self) -> NamedJob:
        """The row, whatever its public id is by now: a replacement takes that over."""
        return NamedJob(self.id)

    @property
    def place(self) -> str:
        """In whose name it waits for its turn at a limit: for all requests of a coalesce key one.

        A refused request may be folded into a newer one, which must not go to the end of the line.
        """
        key = self._claim.coalesce_key
        return self.public_id.hex if key is None else digest(self.task.name, key)[:32]

    @property
    def public_id(self) -> uuid.UUID:
        """The id to store and to show."""
        return self._claim.public_id

    @property
    def key(self) -> str | None:
        """The business key; None for an unkeyed job."""
        return self._claim.key

    @property
    def fence(self) -> int:
        """Grows with every attempt and every rescue, and never goes back."""
        return self._claim.hold.fence

    @property
    def starts(self) -> int:
        """Attempts so far, this one included."""
        return self._claim.starts

    @property
    def failures(self) -> int:
        """Transient failures so far."""
        return self._claim.failures

    def provider_key(self, name: str, item: str = "") -> str:
        """The idempotency key to give a provider for the side effect ``name``.

        64 hex digits, a SHA-256 over app, task, business key (the public id where there is
        none), ``name`` and ``item``: the same in every attempt and replay, and after a purge
        or a restored backup.
        """
        app = self.task.app.main
        return provider_key(app, self.task.name, self.key, self.public_id, name, item)

    def effect(
        self,
        name: str,
        call: Call,
        *,
        find: Find | None = None,
        item: str = "",
        request: Any = None,
        provider: Provider | None = None,
    ) -> Any:
        """Do something in the outside world, once, and return the provider's answer.

        The intent is committed before ``call`` runs; the answer is kept, and a later attempt
        gets it without a call. An answer that never comes is dealt with as the provider's
        ``recovery`` allows; without ``provider``: by ``find`` where there is one, else by a
        person.

        :param name: what is done; with ``item`` (one of many) unique within the job.
        :param call: gets a :class:`Sending` (``key``, ``item``, ``again``) and returns an answer
            that JSON can hold.
        :param find: gets the same and returns :class:`Applied`, :class:`NotApplied` or
            :class:`StillUnknown`.
        :param request: what is asked for; the same effect with another request is refused.
        :raises EffectInTransaction: in an ``atomic=True`` body or inside a transaction.
        :raises GuardError: when ``name`` is none, or what is asked differs; nothing was sent.
        :raises LeaseLost: when the job is no longer held here; nothing was sent.
        :raises Permanent: when the provider has said no for good.
        :raises Transient: when nothing happened, or a repetition is safe.
        :raises UnknownOutcome: when nothing may be sent before there is an answer.
        """
        self._check_process()
        if self.task.guard.atomic:
            raise EffectInTransaction
        if self._in_own_transaction():
            raise EffectInTransaction(
                f"effect {name}: a transaction is open, whose rollback could not undo it; make the "
                "effect before, and keep what came of it in job.finish()"
            )
        if (fault := name_fault(name)) is not None:
            raise GuardError(f"effect {str(name)[:NAME_LENGTH]!r}: {fault}")
        item = item_of(str(item))
        asked = "" if request is None else _digest(request)
        recovery = Recovery.MANUAL if find is None else Recovery.RECONCILABLE
        wish = Wish(
            name=name,
            item=item,
            request=asked,
            provider=provider or Provider(recovery=recovery),
        )
        key = functools.partial(self._versioned_key, name, item)
        find = None if find is None else veiled(self, find)
        call = veiled(self, call)
        return Performance(hold=self.hold, wish=wish, key=key, call=call, find=find).run()

    def _in_own_transaction(self) -> bool:
        return not self.nested and transaction.get_connection(self.using).in_atomic_block

    def _versioned_key(self, name: str, item: str, version: int) -> str:
        # The first version's key is the plain one: a body may have used it by hand before.
        return self.provider_key(name, f"{item}\x00{version}" if version else item)

    @contextlib.contextmanager
    def finish(self, result: Any = None) -> Iterator[None]:
        """The business writes and the end of the job, in one transaction (``atomic=False``).

        Entering locks the job against its rescue. What the block writes, the next steps of the
        canvas and the job's end are committed together or not at all. The next steps get
        ``result``. What the body returns afterwards is stored by a write of its own: if the
        process dies in between, the stored result is ``result``. A block that asks the database
        for nothing for a minute, or for the job's lease if that is longer, is taken for lost: the
        server ends its transaction.

        :raises LeaseLost: when the job is no longer held here; nothing was written.
        :raises GuardError: in an ``atomic=True`` body, inside another transaction, twice, or in a
            process that the body forked.
        """
        from celery_guard.run.ending import close_out
        from celery_guard.run.outcome import Succeeded

        self._check_finish()
        end = Succeeded(value=result)
        with transaction.atomic(using=self.using):
            idling.end_when_idle(self.using, self.lease)
            if not running.lock(self.hold):
                raise LeaseLost
            yield
            close_out(self, end)
        self.finished = end
        fault_point("run.finished", self.id)

    def progress(self, done: int, total: int | None = None) -> None:
        """Tell how far the body has come: ``done`` of ``total``, for the job's status.

        Shown within a second also while the body's own transaction is open: another connection of
        the process keeps it, the newest word at most once a second, so it may be called for every
        row of a loop. It is only a display: an attempt that has lost its job changes nothing by it,
        and nothing is promised of a word that came just before the end.

        :param total: None where nobody knows of how many.
        :raises ValueError: for what is no count.
        """
        told = progress.Told(fence=self.fence, done=_count(done), total=_count(total, unknown=True))
        if self.nested or connections[self.using].vendor == "sqlite":
            # There is no other connection that could see the job.
            progress.report(self.using, self.hold.owner, {self.id: told})
            return
        idle = not self.told
        self.told.append(told)
        if idle:
            heart().hurry()

    def checkpoint(self) -> None:
        """A place where the job may stop, and where what was done so far is done (``atomic=False``).

        To be called between chunks of long work, outside of transactions; costs one query. Leases
        that were lost before count no more from here on: a job that gets on is no poison.

        :raises LeaseLost: when the job is no longer held here.
        :raises Cancelled: when a cancel was asked for; let out of the body, it ends the job so.
        :raises EffectInTransaction: in an ``atomic=True`` body or inside a transaction.
        """
        self._check_process()
        if self.task.guard.atomic or self._in_own_transaction():
            raise EffectInTransaction("a checkpoint needs atomic=False and no open transaction")
        if self.finished:
            return
        found = progress.look_in(self.hold)
        if found is None or (found.lost and not progress.forgive(self.hold)):
            self.lost = True
            raise LeaseLost
        if found.cancel_asked_at is not None:
            self.cancel_asked = True
            raise Cancelled

    def _check_process(self) -> None:
        if self.hold.owner != owner():
            raise GuardError(f"{self.task.name}: a process that the body forked has no job")

    def _check_finish(self) -> None:
        self._check_process()
        if self.task.guard.atomic:
            raise GuardError(f"{self.task.name} is atomic=True: the guard finishes its jobs")
        if self.finished or self.finishing:
            raise GuardError(f"{self.task.name}: finish() was used before in this attempt")
        if self._in_own_transaction():
            raise GuardError(f"{self.task.name}: finish() must be the outermost transaction")


_MOST = 2**31 - 1


def _count(value: int | None, *, unknown: bool = False) -> Any:
    if value is None and unknown:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise ValueError(f"progress is told in whole numbers from 0 to {_MOST}, not {value!r}")
    return value


def _digest(request: Any) -> str:
    text = kombu_json.dumps(request, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def lease_of(task: Guarded) -> float:
    """Seconds a claim of ``task`` lasts without a heartbeat."""
    return float(task.guard.lease or guard_settings().run.lease)
