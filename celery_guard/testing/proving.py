"""Lets a task die at every fault point and compares what is left with an undisturbed run."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from django.db import connections, transaction

from celery_guard.faults import reacting
from celery_guard.jobs import standing
from celery_guard.jobs.models import Job
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.states import State
from celery_guard.relay.models import LaneLead
from celery_guard.run.job import Runnable
from celery_guard.run.rescue import take_from
from celery_guard.settle.models import Effect
from celery_guard.settle.states import EffectState
from celery_guard.testing.draining import drain
from celery_guard.testing.dying import Death, dies_here, dies_in_a_process

MOST_PASSES = 3
"""A point that an attempt passes more often is died at this many times."""


class Provable(Runnable, Protocol):
    """A guarded task, as a proof needs it."""

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue one job."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was proved: the task died once at each of ``deaths``, and nothing was lost or doubled.

    ``how`` says whether processes were killed or an exception stood in for the kill.
    """

    deaths: tuple[Death, ...]
    how: Literal["kill", "raise"]


def prove(
    task: Provable,
    *args: Any,
    state: Callable[..., object],
    fresh: Callable[[], Sequence[Any]] | None = None,
    by_hand: bool = False,
    **kwargs: Any,
) -> Proof:
    """Run a job of ``task`` once undisturbed, then once for each fault point, dying there.

    After each death the job is rescued and run to its end, as in production, and ``state`` must
    say the same as after the undisturbed run. Where the test may commit
    (``TransactionTestCase``, pytest-django's ``transactional_db``) a child process runs the
    attempt and is killed with SIGKILL; what stands in for a provider must then outlive a process
    (a table, a file, a server). In a ``TestCase`` there is one connection and one transaction,
    so an exception that no ``except Exception`` catches stands in for the kill, and each run is
    rolled back.

    :param state: given the call's arguments, returns what to compare: counts of business rows,
        what the provider applied. It must not depend on ids.
    :param fresh: makes the rows for one run and returns its arguments; needed where the test
        commits, since the runs must not meet in one key.
    :param by_hand: accept a death that leaves an effect for a person to decide.
    :raises AssertionError: naming every point after which something was lost, doubled or stuck.
    :raises ValueError: without ``fresh`` where it is needed.
    :raises TypeError: when ``fresh`` returns something else than a tuple or list of arguments.
    """
    nested = connections[task.guard.alias].in_atomic_block
    if not nested and fresh is None:
        raise ValueError("prove: where the test commits, each run needs fresh=…, a case of its own")
    runs = _Runs(task, args, kwargs, state, fresh, nested=nested)
    expected, passes = runs.undisturbed()
    deaths = [
        Death(point=point, nth=nth)
        for point, times in passes.items()
        for nth in range(1, min(times, MOST_PASSES) + 1)
    ]
    wrong = [line for death in deaths for line in runs.dying(death, expected, by_hand=by_hand)]
    if wrong:
        raise AssertionError("\n".join([f"{task.name} does not stand every death:", *wrong]))
    return Proof(deaths=tuple(deaths), how="raise" if nested else "kill")


class _Runs:
    def __init__(
        self,
        task: Provable,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        state: Callable[..., object],
        fresh: Callable[[], Sequence[Any]] | None,
        *,
        nested: bool,
    ) -> None:
        self._task = task
        self._using = task.guard.alias
        self._args = args
        self._kwargs = kwargs
        self._state = state
        self._fresh = fresh
        self._nested = nested

    def undisturbed(self) -> tuple[object, Mapping[str, int]]:
        """What ``state`` says after a run without a death, and how often each point is passed."""
        passes: Counter[str] = Counter()
        for args, job_id in self._one():
            with reacting(lambda name, _: passes.update([name])):
                self._drain(later=False)
            self._drain(later=True)
            job = self._job(job_id)
            if job.state != State.SUCCEEDED:
                raise AssertionError(
                    f"{self._task.name} does not succeed undisturbed: {job.state} ({job.reason}) "
                    f"{job.error or ''}"
                )
            found = self._state(*args, **self._kwargs)
        mine = {
            p: n for p, n in passes.items() if p.partition(".")[0] in ("run", "settle", "outbox")
        }
        return found, mine

    def dying(self, death: Death, expected: object, *, by_hand: bool) -> list[str]:
        """What is wrong after ``death``: nothing, as a rule."""
        for args, job_id in self._one():
            die = dies_here if self._nested else dies_in_a_process
            if not die(death, lambda: self._drain(later=False)):
                return [f"- {death}: it was not passed this time"]
            self._give_back()
            self._drain(later=True)
            job = self._job(job_id)
            if by_hand and self._waits_for_a_person(job):
                return []
            if job.state != State.SUCCEEDED:
                return [
                    f"- {death}: the job is {job.state} ({job.reason}) {job.error or ''}".rstrip()
                ]
            found = self._state(*args, **self._kwargs)
        return [] if found == expected else [f"- {death}: {found!r} instead of {expected!r}"]

    def _one(self) -> Iterator[tuple[Sequence[Any], int]]:
        if not self._nested:
            yield self._enqueued()
            return
        with transaction.atomic(using=self._using):
            yield self._enqueued()
            transaction.set_rollback(True, using=self._using)

    def _enqueued(self) -> tuple[Sequence[Any], int]:
        args = self._args if self._fresh is None else _arguments(self._fresh())
        handle = self._task.delay(*args, **self._kwargs)
        if not handle.created:
            raise ValueError(f"prove: {self._task.name} with {args!r} has a job already")
        return args, Job.objects.using(self._using).get(public_id=handle.public_id).pk

    def _drain(self, *, later: bool) -> None:
        drain(using=self._using, later=later)

    def _job(self, job_id: int) -> Job:
        return Job.objects.using(self._using).get(pk=job_id)

    def _give_back(self) -> None:
        # What a worker's main process does when its child is gone, and time does to its relay.
        LaneLead.objects.using(self._using).update(owner=None, lead_until=None)
        for each in Job.objects.using(self._using).filter(due_at__isnull=False):
            named = NamedJob(each.pk, each.public_id)
            if not (each.owner and take_from(self._using, named, each.owner)):
                standing.unsend(self._using, named)

    def _waits_for_a_person(self, job: Job) -> bool:
        open_ones = Effect.objects.using(self._using).filter(job_id=job.pk)
        manual = open_ones.filter(state=EffectState.MANUAL).exists()
        return job.state == State.RECONCILING and manual


def _arguments(given: object) -> tuple[Any, ...]:
    if not isinstance(given, tuple | list):
        raise TypeError(
            f"prove: fresh must return the arguments as a tuple, like ({given!r},), not {given!r}"
        )
    return tuple(given)
