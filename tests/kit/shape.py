"""What each state of a job has to look like, checked by the tests' databases in every statement.

A site's database checks one rule of it: the whole would cost each statement that writes a job.
"""

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import CheckConstraint, Q

from celery_guard.jobs.models import Job
from celery_guard.jobs.states import TERMINAL, State

SHAPE = CheckConstraint(
    name="celery_guard_job_shape",
    condition=(
        Q(state=State.WAITING, due_at__isnull=False, owner=None)
        | Q(
            state__in=[State.RUNNING, State.RECONCILING],
            due_at__isnull=False,
            sent_at__isnull=False,
            owner__isnull=False,
        )
        | Q(state__in=list(TERMINAL), due_at=None, sent_at=None, owner=None)
    ),
)


def watch_shape(connection: BaseDatabaseWrapper) -> None:
    """Let every statement fail there that leaves a job in no such state."""
    with connection.schema_editor() as editor:
        editor.add_constraint(Job, SHAPE)
