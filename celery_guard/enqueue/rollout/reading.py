"""The stages set at run time, as one process knows them: read at most once in ``KEEPS`` seconds.

When the database can't be asked, what was read last still counts, and the settings do if nothing
was ever read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from types import MappingProxyType

from django.db import Error as DatabaseError
from django.db import connections, transaction

from celery_guard.conf import Mode, Stage, guard_settings
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.rollout.models import TaskMode
from celery_guard.events import emit
from celery_guard.jobs.clock import DatabaseNow

KEEPS = 1.0
OWN = "celery_guard."
"""Begins the names of the toolkit's own tasks, which have no stage: they are always on."""
_ON = Stage()

Stages = Mapping[str, Stage]
_kept: dict[str, tuple[float, Stages]] = {}


def stage_of(task: Guarded, *, blind: bool = False) -> Stage:
    """The stage of ``task`` now; what was set at run time wins over the settings.

    :param blind: go by what was read last, where nothing can be read.
    """
    if task.name.startswith(OWN):
        return _ON
    set_now = known(task.guard.alias) if blind else stages(task.guard.alias)
    return set_now.get(task.name) or stage_in_settings(task.name)


def stage_in_settings(name: str) -> Stage:
    """What the settings say of the task ``name``."""
    rollout = guard_settings().rollout
    return rollout.modes.get(name, rollout.default)


def stages(using: str) -> Stages:
    """What was set for the ledger on ``using``, at most ``KEEPS`` seconds old."""
    read_at, found = _kept.get(using, (None, MappingProxyType({})))
    if read_at is None or time.monotonic() - read_at > KEEPS:
        found = _ask(using, found)
        _kept[using] = (time.monotonic(), found)
    return found


def known(using: str) -> Stages:
    """The same as it was read last, without a look."""
    return _kept.get(using, (0.0, MappingProxyType({})))[1]


def forget() -> None:
    """Read anew at the next look."""
    _kept.clear()


def _ask(using: str, found: Stages) -> Stages:
    try:
        if not connections[using].in_atomic_block:
            return _read(using)
        # A fault here must not break the caller's transaction.
        with transaction.atomic(using=using):
            return _read(using)
    except DatabaseError as error:
        emit("enqueue.modes_blind", logging.WARNING, using=using, error=str(error).strip())
        return found


def _read(using: str) -> Stages:
    rows = TaskMode.objects.using(using).filter(ended_at=None, expires_at__gt=DatabaseNow())
    found = rows.order_by("pk").values_list("task", "mode", "percent")
    return MappingProxyType(
        {task: Stage(mode=Mode(mode), percent=percent) for task, mode, percent in found}
    )
