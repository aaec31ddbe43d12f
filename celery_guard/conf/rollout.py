"""The settings of the rollout: which tasks are guarded, and what happens while nothing moves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from celery_guard.conf.field import checked as _checked
from celery_guard.conf.field import setting as _setting
from celery_guard.conf.modes import ON, Stage
from celery_guard.rate import Rate

_FIVE = Rate(count=5.0, per=1.0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """How much of the work may be done by the site itself while the broker is away.

    It counts for tasks that say ``fallback=True``, in ``submit`` alone. Every bound holds for all
    processes of one ledger together.
    """

    lanes: tuple[str, ...] = dataclasses.field(default=("high",), metadata=_checked("names"))
    """The lanes whose tasks may fall back."""
    concurrency: int = _setting(4, "positive")
    """Jobs that run so at once; further requests are refused."""
    rate: Rate | None = _setting(_FIVE, "one rate")
    """Jobs that are begun so, as `"5/s"` or `"100/m"`; `None`: no bound but the concurrency."""
    burst: int = _setting(5, "positive")
    """Jobs that may begin so at one moment after a rest."""
    time: float = _setting(2.0, "positive")
    """How long a request waits for the end; a body that takes longer goes on behind it."""
    lease: float = _setting(30.0, "positive")
    """How long such a body holds its job, without a heartbeat; after that a worker may have it."""
    after: float = _setting(5.0, "not negative")
    """How long the broker must have been away."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Which tasks are guarded, and by how much; what is set at run time wins."""

    default: Stage = dataclasses.field(default=ON, metadata=_checked("stage"))
    """The mode of every task that ``modes`` does not name: ``"off"``, ``"observe"``, ``"compare"``, ``"canary:10"`` (percent of the keys) or ``"on"``."""
    modes: Mapping[str, Stage] = dataclasses.field(
        default_factory=dict, metadata=_checked("stages")
    )
    """The modes of single tasks, by their full names."""
    fallback: Fallback = dataclasses.field(default_factory=Fallback)
