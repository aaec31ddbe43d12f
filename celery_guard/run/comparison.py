"""A run beside the site's own: in a transaction that is rolled back, its effects suppressed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from celery.exceptions import Ignore
from django.db import transaction
from kombu.utils import json as kombu_json

from celery_guard.enqueue.hiding import without
from celery_guard.enqueue.rollout.comparing import HEADER, Reference
from celery_guard.enqueue.rollout.differing import Difference, difference, keep
from celery_guard.errors import GuardError, LeaseLost
from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs.idling import brief
from celery_guard.outbox.capture import capture_everything
from celery_guard.run.classify import outcome_of
from celery_guard.run.current import running_job
from celery_guard.run.failure import failure_of
from celery_guard.run.forked import called_alone
from celery_guard.run.job import CurrentJob, Runnable
from celery_guard.run.outcome import Retry, Snooze, Succeeded
from celery_guard.run.plain import effect_name
from celery_guard.run.record import record
from celery_guard.run.unseen import hidden_of
from celery_guard.settle.perform import decoded


class OtherEffect(GuardError):
    """The body asked for an effect that the site's own run did not ask for."""


def refuse_in_rehearsal(task: str) -> None:
    """Keep a run beside from doing other work for good: what it submits would run here and now.

    :raises OtherEffect: inside such a run.
    """
    if isinstance(running_job(), Rehearsal):
        raise OtherEffect(f"submit of {task}")


class Rehearsal(CurrentJob):
    """The job as its body sees it while nothing of what it does will stay.

    An effect makes no call: it returns what the provider answered in the site's own run.
    """

    __slots__ = ("_reference", "_wanted")

    def __init__(self, task: Runnable, *given: Any, **options: Any) -> None:
        super().__init__(task, *given, **options)
        self._reference: Reference | None = None
        self._wanted: set[str] = set()

    @property
    def reference(self) -> Reference:
        """What the site's own run came to."""
        if self._reference is None:
            request = self.request
            text = request.get(HEADER) or (request.headers or {}).get(HEADER)
            if not text:
                raise Ignore("a comparison without its reference")
            self._reference = Reference.decode(text)
        return self._reference

    @property
    def left_out(self) -> list[str]:
        """Effects of the site's own run that this one did not ask for."""
        return sorted(self.reference.effects.keys() - self._wanted)

    def effect(self, name: str, call: Any, *, item: str = "", **options: Any) -> Any:
        """The provider's answer in the site's own run; nothing is called."""
        wanted = effect_name(name, item)
        if wanted not in self.reference.effects:
            raise OtherEffect(f"effect {name}")
        self._wanted.add(wanted)
        return decoded(self.reference.effects[wanted])

    @contextlib.contextmanager
    def finish(self, result: Any = None) -> Iterator[None]:
        """A transaction within the one that is rolled back."""
        with transaction.atomic(using=self.using):
            yield

    def progress(self, done: int, total: int | None = None) -> None:
        """Nobody is told."""

    def checkpoint(self) -> None:
        """There is nothing to keep."""


def run_beside(job: Rehearsal, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Succeeded:
    """Run the body, undo all of it, and keep how its result differs, with the job's end.

    :raises LeaseLost: when the job is no longer held here; nothing was kept.
    """
    differs = _unseen(job, _differs(job, args, kwargs))
    end = Succeeded()
    with brief(job.using):
        if differs is not None:
            keep(job.using, job.task.name, job.public_id, differs)
        job.finishing = end
        if not record(job, end):
            raise LeaseLost
        fault_point("run.finishing", job.id)
    told = "" if differs is None else differs.name
    emit("run.compared", job=job.id, task=job.task.name, difference=told)
    return end


def _unseen(job: Rehearsal, differs: Difference | None) -> Difference | None:
    # The names in a result may be what people wrote.
    if differs is None:
        return None
    hidden = hidden_of(job)
    return Difference(without(differs.name, hidden), without(differs.example, hidden))


def _differs(job: Rehearsal, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Difference | None:
    expected = kombu_json.loads(job.reference.result)
    try:
        # What it enqueues, plain tasks too, is undone with its rows.
        with transaction.atomic(using=job.using), capture_everything(job.using):
            value = called_alone(job.task, args, kwargs)
            transaction.set_rollback(True, using=job.using)
    except Exception as error:
        if isinstance(outcome_of(job, error, args, kwargs), Retry | Snooze):
            # A deadlock, a provider's limit: nothing is known yet.
            raise
        failure = failure_of(error)
        return Difference(_raised(error, failure.type), f"group {failure.fingerprint}")
    if job.left_out:
        return Difference(f"left out: effect {', '.join(job.left_out)}")
    try:
        found = kombu_json.loads(kombu_json.dumps(value))
    except (TypeError, ValueError) as error:
        return Difference("the result can't be encoded", str(error))
    return difference(expected, found, job.task.guard.compare)


def _raised(error: Exception, kind: str) -> str:
    return f"not asked for before: {error}" if isinstance(error, OtherEffect) else f"raised {kind}"
