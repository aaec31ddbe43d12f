"""The stages set at run time, as one process knows them.

When the database can't be asked, what was read last still counts, and the settings do if nothing
was ever read.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from celery_guard.conf import Mode, Stage, guard_settings
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.rollout.models import TaskMode
from celery_guard.enqueue.steering.known import Known

OWN = "celery_guard."
"""Begins the names of the toolkit's own tasks, which have no stage: they are always on."""
_ON = Stage()

Stages = Mapping[str, Stage]


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
    """What was set for the ledger on ``using``, at most a second old."""
    return _known.now(using)


def known(using: str) -> Stages:
    """The same as it was read last, without a look."""
    return _known.last(using)


def forget() -> None:
    """Read anew at the next look."""
    _known.forget()


def _read(using: str) -> Stages:
    rows = TaskMode.objects.using(using).in_force()
    found = rows.order_by("pk").values_list("task", "mode", "percent")
    return MappingProxyType(
        {task: Stage(mode=Mode(mode), percent=percent) for task, mode, percent in found}
    )


_known = Known[Stages](_read, nothing=MappingProxyType({}), blind="enqueue.modes_blind")
