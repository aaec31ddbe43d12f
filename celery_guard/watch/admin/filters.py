"""Filters whose choices cost no scan of the ledger."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import SimpleListFilter
from django.db import connections
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from celery_guard.conf import guard_settings
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import DEAD_LETTERS, TERMINAL, State
from celery_guard.relay.lead import find_lanes

TASKS_MOST = 200
DEAD = "dead-letters"
RARE = frozenset({DEAD, *TERMINAL} - {State.SUCCEEDED})
"""Choices to which no index leads: it would be one more to keep up for every job."""

# A loose index scan over the key's index: one look-up per task name, however many jobs.
_TASKS = """
WITH RECURSIVE tasks(task, place) AS (
    SELECT min(task), 1 FROM celery_guard_job
    UNION ALL
    SELECT (SELECT min(job.task) FROM celery_guard_job AS job WHERE job.task > tasks.task),
           tasks.place + 1
    FROM tasks WHERE tasks.task IS NOT NULL AND tasks.place < %s
)
SELECT task FROM tasks WHERE task IS NOT NULL
"""


def tasks_in_use(using: str) -> list[str]:
    """The names of tasks that have jobs, the first ``TASKS_MOST`` of them, in order."""
    with connections[using].cursor() as cursor:
        cursor.execute(_TASKS, [TASKS_MOST])
        return [task for (task,) in cursor.fetchall()]


class StateFilter(SimpleListFilter):
    """By state, and the dead letters together."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """All states there are, whether a job is in one or not."""
        return [(DEAD, _("Dead letters (failed and dead)")), *State.choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        """The jobs in the chosen state."""
        chosen = self.value()
        if chosen == DEAD:
            return queryset.filter(state__in=DEAD_LETTERS)
        if chosen not in State.values:
            return queryset
        return queryset.filter(_whereabouts(State(chosen)), state=chosen)


def _whereabouts(state: State) -> Q:
    """What is true of every job in ``state`` and leads to it by the ledger's index."""
    match state:
        case State.RUNNING | State.RECONCILING:
            return _in_lanes() & Q(sent_at__isnull=False)
        case State.WAITING:
            unsent = Q(sent_at=None, due_at__isnull=False)
            return _in_lanes() & (Q(sent_at__isnull=False) | unsent)
    return Q()


def _in_lanes() -> Q:
    return Q(lane__in=sorted(find_lanes(guard_settings().using)))


class LaneFilter(SimpleListFilter):
    """By lane."""

    title = _("lane")
    parameter_name = "lane"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The lanes of the settings first, then the queues that are lanes of their own."""
        own = guard_settings().lanes
        others = sorted(find_lanes(guard_settings().using) - set(own))
        return [(lane, lane) for lane in (*own, *others)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        """The jobs of the chosen lane."""
        return queryset.filter(lane=self.value()) if self.value() else queryset


class TaskFilter(SimpleListFilter):
    """By task."""

    title = _("task")
    parameter_name = "task"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The tasks that have jobs."""
        return [(task, task) for task in tasks_in_use(guard_settings().using)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        """The jobs of the chosen task."""
        return queryset.filter(task=self.value()) if self.value() else queryset
