"""How an attempt ended: a closed set of values, written down in one place (``run.record``)."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

from celery_guard.jobs.states import Reason
from celery_guard.outbox.capture import Captured

# Ends of a job whose Celery task id was left unanswered on purpose.
IGNORED = "ignored"
REPLACED = "replaced"
SILENT = frozenset({IGNORED, REPLACED})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The work is done. ``tell`` is raised to Celery instead of returning ``value``."""

    value: Any = None
    reason: str = Reason.DONE
    tell: BaseException | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Failed in a way that may pass: again at ``due``, one failure used up.

    ``due`` is in seconds from now or an instant; ``message`` replaces the job's message.
    """

    due: float | datetime
    tell: BaseException
    reason: str = Reason.RETRY
    cause: BaseException | None = None
    message: Captured | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snooze:
    """Not the job's fault: again at ``due`` (as in a retry), nothing used up."""

    due: float | datetime
    tell: BaseException
    reason: str = Reason.SNOOZE
    cause: BaseException | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Trying again cannot help."""

    reason: str
    cause: BaseException
    tell: BaseException


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """The budget is used up."""

    reason: str
    cause: BaseException
    tell: BaseException


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A cancel was asked for, and the body gave way."""

    cause: BaseException
    tell: BaseException
    reason: str = Reason.CANCEL


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Uncertain:
    """An outside call has no answer: nothing runs until there is one, or a person decides."""

    cause: BaseException
    tell: BaseException


Outcome = Succeeded | Retry | Snooze | Fail | Dead | Stopped | Uncertain
