"""A worker whose transaction the database ends for a deadlock begins it anew."""

import pytest
from django.db import transaction

from celery_guard.models import Job
from celery_guard.run.patience import patiently
from tests.factories import make_job
from tests.kit.rival import rival
from tests.kit.told import told

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]


def test_a_deadlock_is_not_taken_for_an_outage() -> None:
    """Nothing was committed, nothing is told of a database that is away."""
    one, other = make_job(), make_job()

    def lock(job: Job) -> Job:
        return Job.objects.select_for_update().get(pk=job.pk)

    def claim() -> str:
        with transaction.atomic():
            lock(one)
            lock(other)
        return "done"

    with told() as heard, rival(lambda: lock(other), lambda: lock(one)):
        assert patiently("default", claim) == ("done", False)
    assert heard == []
