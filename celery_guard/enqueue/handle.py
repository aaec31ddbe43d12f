"""What the caller gets back."""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from celery import states
from celery.exceptions import TimeoutError as StillRunning
from celery.result import AsyncResult
from kombu.utils import json
from vine import promise

from celery_guard.enqueue.admission.overload import pressure_of
from celery_guard.enqueue.call import Enqueued
from celery_guard.errors import JobCancelled, JobError
from celery_guard.jobs.adding import public_id_of
from celery_guard.jobs.following import answering
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import TERMINAL, Reason, State

_CELERY_STATES = {
    State.WAITING: states.PENDING,
    State.RUNNING: states.STARTED,
    State.RECONCILING: states.STARTED,
    State.SUCCEEDED: states.SUCCESS,
    State.CANCELLED: states.REVOKED,
    State.EXPIRED: states.REVOKED,
}


if TYPE_CHECKING:
    _AsyncResult = AsyncResult[Any]
else:
    _AsyncResult = AsyncResult


class JobHandle(_AsyncResult):
    """An :class:`~celery.result.AsyncResult` that also names its job.

    ``created`` is False when the key was taken and this is the handle of the job that has it.
    ``state`` and ``get`` read the ledger first; a result backend is not needed for them. Where a
    newer request of the same coalesce key took the job's place, they tell of that one's run.
    """

    created: bool = True
    using: str = "default"
    lane: str = "medium"
    _public_id: uuid.UUID | None = None
    _cache: dict[str, Any] | None

    @classmethod
    def light(cls, task_id: str, app: Any, backend: Any) -> Self:
        """A handle as its constructor makes it, without a promise that few ever ask for."""
        handle = cls.__new__(cls)
        handle.id = task_id
        handle.app = app
        handle.backend = backend
        handle.parent = None
        handle._cache = None
        handle.ignored = False
        return handle

    @functools.cached_property
    def on_ready(self) -> Any:  # type: ignore[override]
        """Celery's promise of the result, made when it is first asked for."""
        return promise(self._on_fulfilled, weak=True)  # type: ignore[attr-defined]

    @property
    def public_id(self) -> uuid.UUID:
        """The random id to store and to show: the row it names may be purged one day."""
        return self._public_id or public_id_of(self.id)

    @property
    def job(self) -> Job | None:
        """The job as it is now; None before its commit is seen, or after its purge."""
        return Job.objects.using(self.using).filter(public_id=self.public_id).first()

    @property
    def pressure(self) -> float:
        """How near the task's lane is to its limits, as last measured; 1: reached, 0: none set."""
        return pressure_of(self.using, self.lane)

    def answered_by(self, enqueued: Enqueued) -> JobHandle:
        """Fill in what the enqueue found out."""
        self.id = enqueued.task_id
        self.created = enqueued.created
        self.using = enqueued.using
        self._public_id = enqueued.public_id
        return self

    def with_result(self, value: Any) -> JobHandle:
        """The same for work that is done already, without a job."""
        self._cache = {
            "task_id": self.id,
            "status": states.SUCCESS,
            "result": value,
            "traceback": None,
            "children": [],
            "date_done": None,
        }
        return self

    def _get_task_meta(self) -> dict[str, Any]:
        if self._cache is not None:
            return self._cache
        job = self.job
        if job is None:
            return super()._get_task_meta()  # type: ignore[misc, no-any-return]
        job = answering(self.using, job)
        meta = _meta(job, self.id)
        if job.state in TERMINAL:
            self._cache = meta
        return meta

    def get(  # type: ignore[override]
        self, timeout: float | None = None, propagate: bool = True, **options: Any
    ) -> Any:
        """The job's result; raises its stored error.

        A task that ignores its result is waited for as well, by looking into the ledger.

        :param timeout: seconds to wait for the end.
        :raises JobError: when the job ended without success.
        :raises celery.exceptions.TimeoutError: when it has not ended in time.
        """
        if self._get_task_meta()["status"] in states.READY_STATES:
            return self.maybe_throw(propagate=propagate)
        if self._ends_untold():
            self._await_end(timeout)
            return self.maybe_throw(propagate=propagate)
        return super().get(timeout=timeout, propagate=propagate, **options)

    def _ends_untold(self) -> bool:
        """Whether the result backend won't tell of the end under this id.

        It keeps nothing of an ignored result. That of a coalesced job may come under another id,
        and nobody knows yet under which.
        """
        job = self.job
        if job is None:
            return False
        return not job.awaited or (job.coalesce_key or job.survivor_id) is not None

    def _await_end(self, timeout: float | None) -> None:
        pause, until = 0.02, None if timeout is None else time.monotonic() + timeout
        while self._get_task_meta()["status"] not in states.READY_STATES:
            if until is not None and time.monotonic() >= until:
                raise StillRunning("The operation timed out.")
            time.sleep(pause)
            pause = min(0.5, pause * 1.5)


def handles_of(task: Any) -> Callable[[str], JobHandle]:
    """``task.AsyncResult``, for many jobs that one call makes.

    What Celery finds out anew for each result, such as its backend, is asked once. A task's own
    ``AsyncResult`` is called for each.
    """
    if getattr(task.AsyncResult, "guard_own", None) is not True:
        own: Callable[[str], JobHandle] = task.AsyncResult
        return own
    app, backend, light = task.app, task.backend, JobHandle.light
    using, lane = task.guard.alias, task.guard.lane

    def handle_of(task_id: str) -> JobHandle:
        handle = light(task_id, app, backend)
        handle.using, handle.lane = using, lane
        return handle

    return handle_of


_RETRIED = (Reason.RETRY, Reason.RETRY_BUDGET)


def _meta(job: Job, task_id: str) -> dict[str, Any]:
    status = _CELERY_STATES.get(State(job.state), states.FAILURE)
    if job.state == State.WAITING and job.reason in _RETRIED:
        status = states.RETRY
    return {
        # The id in hand: under it the waiting side of the result backend knows this result.
        "task_id": task_id,
        "status": status,
        "result": result_of(job) if status == states.SUCCESS else error_of(job),
        "traceback": None,
        "children": [],
        "date_done": job.finished_at,
    }


def result_of(job: Job) -> Any:
    """The stored return value."""
    return None if job.result is None else json.loads(job.result)


def error_of(job: Job) -> JobError | None:
    """The stored end of an unsuccessful job as an exception, None while it has none."""
    if job.state not in TERMINAL:
        return None
    told = json.loads(job.error) if job.error else {}
    text = f"{told['type']}: {told['message']}" if told else f"the job was {job.state}"
    kind = JobCancelled if job.state == State.CANCELLED else JobError
    return kind(text, job.state, job.reason)
