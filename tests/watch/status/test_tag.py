"""A job's status in a page of the site's own."""

from __future__ import annotations

import uuid

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.template import Context, Template
from django.test import RequestFactory

from celery_guard.jobs.states import State
from tests.factories import make_job
from tests.project.shop.tasks import mark
from tests.watch.rows import ended

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("site")]

PAGE = Template("{% load celery_guard %}<main>{% job_status job %}</main>")


def render(job: object, user: object) -> str:
    request = RequestFactory().get("/")
    request.user = user
    return PAGE.render(Context({"request": request, "job": job}))


def test_the_status_stands_in_the_page() -> None:
    """By public id, with its own style and script, a form that may be sent, and no document."""
    job = make_job(tenant="ada")
    found = render(job.public_id, User(username="ada"))
    assert f'data-guard-job="/guard/{job.public_id}/"' in found
    assert "csrfmiddlewaretoken" in found
    assert found.count('<script type="module" src=') == 1
    assert "<html" not in found
    assert "data-guard-job" in render(str(job.public_id), User(username="ada"))


def test_a_handle_will_do() -> None:
    """What a view has in hand; this job has no tenant, so it is nobody's."""
    assert render(mark.delay("a"), User(username="")) == "<main></main>"


def test_nobody_elses_job_is_shown() -> None:
    """The page that holds it is no way around the hook."""
    job = make_job(tenant="ada")
    for user in (AnonymousUser(), User(username="bob")):
        assert render(job.public_id, user) == "<main></main>"
    assert render(uuid.uuid4(), User(username="ada")) == "<main></main>"


@pytest.mark.parametrize("job", ["", None, "order-7", 7, "%s"])
def test_what_is_no_job_shows_nothing(job: object) -> None:
    """A page does not fail over a variable that is empty."""
    assert render(job, User(username="ada")) == "<main></main>"


def test_markup_in_what_the_site_says_is_escaped() -> None:
    """A result's address comes from the site, perhaps from a key that people wrote."""
    job = ended(state=State.SUCCEEDED, tenant="ada", key='"><script>alert(1)</script>')
    assert "<script>alert" not in render(job.public_id, User(username="ada"))
