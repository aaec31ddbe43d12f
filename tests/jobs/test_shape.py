"""What the database itself does not let happen to a job."""

import uuid

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction

from celery_guard.jobs.adding import NewJob
from celery_guard.jobs.models import Job
from celery_guard.outbox import store
from tests.kit.shape import SHAPE
from tests.outbox.test_store import captured

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("whole", [True, False])
def test_no_job_waits_without_a_time_and_none_with_one_has_ended(whole: bool) -> None:
    """Whoever mends rows by hand is told; in the tests' databases and in a site's."""
    new = NewJob(task="t", lane="medium", public_id=uuid.uuid4())
    store.insert("default", new, captured())
    with connection.schema_editor() as editor:
        if not whole:
            editor.remove_constraint(Job, SHAPE)
    try:
        for wrong in ({"due_at": None}, {"state": "running"}, {"state": "dead"}):
            # MariaDB's error is of another class.
            with pytest.raises((IntegrityError, OperationalError)), transaction.atomic():
                Job.objects.update(**wrong)
        if whole:
            with pytest.raises((IntegrityError, OperationalError)), transaction.atomic():
                Job.objects.update(state="nowhere", due_at=None)
        else:
            Job.objects.update(state="nowhere", due_at=None)
            Job.objects.all().delete()
    finally:
        with connection.schema_editor() as editor:
            if not whole:
                editor.add_constraint(Job, SHAPE)
