"""The settings of the rollout: which tasks are guarded, and what happens while nothing moves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from celery_guard.conf.field import checked as _checked
from celery_guard.conf.modes import ON, Stage


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Which tasks are guarded, and by how much; what is set at run time wins."""

    default: Stage = dataclasses.field(default=ON, metadata=_checked("stage"))
    """The mode of every task that ``modes`` does not name: ``"off"``, ``"compare"``, ``"canary:10"`` (percent of the keys) or ``"on"``."""
    modes: Mapping[str, Stage] = dataclasses.field(
        default_factory=dict, metadata=_checked("stages")
    )
    """The modes of single tasks, by their full names."""
