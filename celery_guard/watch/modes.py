"""Which mode counts for each task now, and why, as it is shown to people."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

from celery import Celery

from celery_guard.conf import Mode
from celery_guard.conf.modes import parse_stage
from celery_guard.enqueue.rollout.models import TaskMode
from celery_guard.enqueue.rollout.reading import OWN, stage_in_settings
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.watch.spoken import spoken


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShownMode:
    """A task's stage; what was set at run time has an author, a reason and ``left`` seconds."""

    using: str
    task: str
    stage: str
    reason: str = ""
    author: str = ""
    expires_at: datetime | None = None
    left: float | None = None

    @property
    def says(self) -> str:
        """All of it in one line."""
        if self.left is None:
            return f"{self.task} is {self.stage}, by the settings"
        return (
            f"{self.task} is {self.stage} for another {spoken(self.left)} "
            f"({self.author}: {self.reason}); then {stage_in_settings(self.task)}"
        )


def modes_now(app: Celery, aliases: Collection[str]) -> list[ShownMode]:
    """Every task whose stage was set at run time, and every other that is not simply on."""
    found = [shown for using in aliases for shown in _set(using)]
    named = {shown.task for shown in found}
    for name, task in sorted(app.tasks.items()):
        guard: Any = getattr(task, "guard", None)
        if guard is None or name in named or name.startswith(OWN) or guard.alias not in aliases:
            continue
        if (stage := stage_in_settings(name)).mode is not Mode.ON:
            found.append(ShownMode(using=guard.alias, task=name, stage=str(stage)))
    return sorted(found, key=lambda shown: shown.task)


def _set(using: str) -> Iterator[ShownMode]:
    rows = TaskMode.objects.using(using).in_force()
    newest: Any = {row.task: row for row in rows.annotate(now=DatabaseNow()).order_by("pk")}
    for row in newest.values():
        yield ShownMode(
            using=using,
            task=row.task,
            stage=str(row.stage),
            reason=row.reason,
            author=row.author,
            expires_at=row.expires_at,
            left=(row.expires_at - row.now).total_seconds(),
        )


def as_json(shown: Collection[ShownMode]) -> list[dict[str, object]]:
    """The same as plain values."""
    return [
        {
            **dataclasses.asdict(one),
            "expires_at": one.expires_at.isoformat() if one.expires_at else None,
        }
        for one in shown
    ]


def stage_faults(task: Any, stage: str) -> Iterator[str]:
    """Why ``stage`` can't be ``task``'s."""
    try:
        parsed = parse_stage(stage)
    except ValueError as error:
        yield f"the mode {error}, not {stage!r}"
        return
    if parsed.mode is Mode.COMPARE and not task.guard.comparable:
        yield f"{task.name} is not declared comparable=True, so it can't be compared"
