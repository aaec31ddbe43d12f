"""Small jobs: those of tasks that are over soon, wherever they stand in a lane's line.

The ledger does not say how long a job takes, and has no index by task. So the long ones before them
are passed by reading a stretch of the line, and the line as a whole only now and then.
"""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Q

from celery_guard.jobs import sharing
from celery_guard.jobs.sharing import Stretch


def of_tasks(tasks: Collection[str]) -> Q:
    """The jobs of ``tasks``, and plain ones.

    A plain job leaves the ledger when it is sent: nobody can count how many of them run.
    """
    return Q(task__in=list(tasks)) | Q(plain=True)


def longs_held(using: str, lane: str, tasks: Collection[str]) -> int:
    """How many jobs of ``lane`` are with the broker or run, those of ``tasks`` left out."""
    return sharing.held(using, lane).exclude(of_tasks(tasks)).count()


def find(using: str, lane: str, tasks: Collection[str]) -> Stretch | None:
    """Where the first due jobs of ``tasks`` are, among the lane's oldest."""
    return sharing.find(using, lane, of_tasks(tasks))


def due_in(using: str, lane: str, tasks: Collection[str], stretch: Stretch) -> dict[int, str]:
    """The due jobs of ``tasks`` in ``stretch``, oldest first, and whose each of them is."""
    line = sharing.along(using, lane, stretch).values_list("pk", "tenant", "task", "plain")
    return {
        pk: tenant for pk, tenant, task, plain in line[: stretch.most] if plain or task in tasks
    }
