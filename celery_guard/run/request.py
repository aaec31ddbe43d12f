"""What a worker's main process does for guarded tasks: it never speaks for the ledger.

Celery's main process learns that a child died, ran over its hard limit or was terminated, and
would store a failure and run errbacks while the ledger still owes the job. Here the ledger's
move comes first, and Celery is told only what that move made true. What can't be written is
left to the rescue; the message is acknowledged in any case, since the row is the truth.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Any, cast

from billiard.exceptions import Terminated, TimeLimitExceeded
from celery.worker import state as worker_state
from celery.worker.request import Request
from celery.worker.state import task_ready
from django.db import Error as DatabaseFault

from celery_guard.enqueue.tenants import acting_for
from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs import owed, standing
from celery_guard.jobs.adding import public_id_of
from celery_guard.jobs.deadlock import again_on_deadlock
from celery_guard.jobs.models import Job
from celery_guard.jobs.named import JOB_HEADER, NamedJob, named_in
from celery_guard.jobs.states import Reason, State
from celery_guard.run.bounded import bounded
from celery_guard.run.chords import is_being_sent
from celery_guard.run.owner import owner_of
from celery_guard.run.rescue import end_of, take_from


class GuardedRequest(Request):
    """The request class of guarded tasks (``Task.Request``)."""

    _tenant = ""

    def on_failure(
        self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False
    ) -> None:
        """The child told of a failure, or is gone."""
        # Billiard wraps what came from another process, to keep its traceback.
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if return_ok and isinstance(error, MemoryError):
            # The child lives and has told it. Celery would end the whole worker for one body.
            task_ready(self)
            self.acknowledge()
        elif return_ok or self._is_plain():
            super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        elif not isinstance(error, TimeLimitExceeded):
            task_ready(self)
            self._in_ledger(self._give_back)
            if self._in_ledger(self._owes_an_answer):
                self.reject(requeue=True)
            else:
                self.acknowledge()
        # A hard limit comes to ``on_timeout`` next, which does what there is to do.

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """The job ran over a time limit."""
        ours = not soft and not worker_state.should_terminate and not self._is_plain()
        if ours and not self._in_ledger(
            lambda job: self._ends(job, self._over_limit(job, timeout))
        ):
            task_ready(self)
            self.acknowledge()
        else:
            with acting_for(self._tenant):
                super().on_timeout(soft, timeout)
            if ours:
                self._in_ledger(self._told)

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        plain = self._is_plain()
        if plain or self._in_ledger(lambda job: self._ends(job, self._cancel(job))):
            with acting_for(self._tenant):
                cast(Any, super())._announce_revoked(reason, terminated, signum, expired)
            if not plain:
                self._in_ledger(self._told)
            return
        task_ready(self)
        self._already_revoked = True
        self.acknowledge()

    def _is_plain(self) -> bool:
        # Its task's mode made no job of it: Celery's own rules hold.
        if named_in(self.request_dict.get(JOB_HEADER)) is not None:
            return False
        try:
            with bounded(self._using):
                return self._job() is None
        except DatabaseFault as error:
            emit("run.main_unrecorded", logging.ERROR, task=self.name, id=self.id, why=str(error))
            return False

    def _give_back(self, job: NamedJob) -> bool:
        if take_from(self._using, job, self._child):
            return True
        # It died before the claim, and the message dies with it: have another one sent.
        return standing.unsend(self._using, job)

    def _owes_an_answer(self, job: NamedJob) -> bool:
        # It died between the commit and the answer, or was the last that the job was given: the
        # next copy is answered from the row.
        return owed.ask_again(self._using, job)

    def _over_limit(self, job: NamedJob, timeout: float) -> bool:
        error = TimeLimitExceeded(timeout)
        if end_of(self._using, job, self._child, State.FAILED, Reason.TIMED_OUT, error):
            return True
        # Where the limit is an exception in the body, the body's own end has said it already.
        found = standing.look(self._using, job)
        return found is not None and (found.state, found.reason) == (
            State.FAILED,
            Reason.TIMED_OUT,
        )

    def _cancel(self, job: NamedJob) -> bool:
        error = Terminated("revoked")
        if end_of(self._using, job, self._child, State.CANCELLED, Reason.CANCEL, error):
            return True
        # The child may have put it back just now.
        if standing.cancel(self._using, job):
            return True
        # Cancelled already, and whoever did it could not tell.
        found = standing.look(self._using, job)
        return found is not None and found.state == State.CANCELLED and not found.answered

    def _ends(self, job: NamedJob, ended: bool) -> bool:
        # Celery is told next, and sends errbacks from here: for whom the job was.
        found = standing.look(self._using, job) if ended else None
        self._tenant = found.tenant if found is not None else ""
        return ended

    def _told(self, job: NamedJob) -> bool:
        # Celery has just stored the end that the ledger's move made true.
        if is_being_sent(self.task, cast(Any, self)._context):
            return False
        found = standing.look(self._using, job)
        return found is not None and standing.answered(self._using, job.id, found.fence)

    def _in_ledger(self, move: Callable[[NamedJob], bool]) -> bool:
        try:
            job, moved = again_on_deadlock(lambda: self._bounded(move))
        except DatabaseFault as error:
            emit("run.main_unrecorded", logging.ERROR, task=self.name, id=self.id, why=str(error))
            return False
        if job is not None and moved:
            fault_point("run.main_committed", job.id)
        return moved

    def _bounded(self, move: Callable[[NamedJob], bool]) -> tuple[NamedJob | None, bool]:
        with bounded(self._using):
            job = self._job()
            moved = job is not None and move(job)
            if job is not None and moved:
                fault_point("run.main_moved", job.id)
        return job, moved

    @property
    def _child(self) -> uuid.UUID:
        return owner_of(cast("int | None", self.worker_pid))

    @property
    def _using(self) -> str:
        return str(cast(Any, self.task).guard.alias)

    def _job(self) -> NamedJob | None:
        if (named := named_in(self.request_dict.get(JOB_HEADER))) is not None:
            return named
        public_id = public_id_of(self.id)
        adopted = Job.objects.using(self._using).filter(public_id=public_id).values_list("pk")
        return NamedJob(*found, public_id) if (found := adopted.first()) else None
