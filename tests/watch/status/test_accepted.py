"""What a view answers that has asked for work."""

from __future__ import annotations

import pytest
from celery.result import AsyncResult
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from celery_guard import accepted
from tests.project.shop.tasks import mark

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]


@pytest.mark.bar
@pytest.mark.usefixtures("switches_read")
def test_the_answer_says_where_and_when_to_look(ada: Client) -> None:
    """202, Location, Retry-After, inside the job's own transaction too."""
    with transaction.atomic(), CaptureQueriesContext(connection) as captured:
        job = mark.delay("a")
        before = len(captured)
        answer = accepted(job)
        assert len(captured) - before <= 2
    assert answer.status_code == 202
    assert answer["Location"] == f"/guard/{job.public_id}/"
    assert int(answer["Retry-After"]) >= 1
    assert answer["Cache-Control"] == "no-store"
    assert b"waiting" not in answer.content
    assert ada.get(answer["Location"]).status_code == 404


def test_only_handles_are_accepted() -> None:
    """An unguarded task has no job to look at."""
    with pytest.raises(TypeError, match="guarded task"):
        accepted(AsyncResult("x"))


@pytest.mark.urls("tests.checks.no_urls")
def test_a_site_without_the_urls_is_told_the_line() -> None:
    """The fault names what to write, where."""
    with pytest.raises(ImproperlyConfigured, match=r'include\("celery_guard\.urls"\)'):
        accepted(mark.delay("a"))
