"""What a body or a provider says of its failure, without what the job's call hides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from celery_guard.enqueue.hiding import hidden_values, veil
from celery_guard.errors import Throttled

if TYPE_CHECKING:
    from celery_guard.run.job import CurrentJob

P = ParamSpec("P")
R = TypeVar("R")


def hidden_of(job: CurrentJob) -> list[str]:
    """The texts that nobody but the body of ``job`` is to see."""
    request = job.request
    return hidden_values(job.task.app, job.task, request, request.args or (), request.kwargs or {})


def veil_for(job: CurrentJob, error: BaseException | None) -> None:
    """Take them out of ``error``, before anybody is told of it."""
    # A limit's refusal is of our own making, comes often, and quotes nothing.
    if error is not None and not isinstance(error, Throttled):
        veil(error, hidden_of(job))


def veiled(job: CurrentJob, call: Callable[P, R]) -> Callable[P, R]:
    """``call``, with them taken out of what it raises."""

    def calling(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            veil_for(job, error)
            raise

    return calling
