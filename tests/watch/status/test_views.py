"""The status resource: who sees what, as JSON and as a page."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from celery_guard.jobs.states import State
from celery_guard.models import Job, LaneSnapshot
from celery_guard.watch.snapshot import take_snapshot
from tests.factories import make_job
from tests.watch.rows import ended, retrying, running, sent
from tests.watch.status.asking import HTML, logged_in, page, told, url

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]

FIELDS = {
    *("id", "url", "state", "reason", "over", "progress", "attempt", "cancel_asked", "error"),
    *("created_at", "due_at", "started_at", "finished_at", "predicted_wait", "retry_after"),
    *("result", "survivor"),
}


@pytest.mark.bar
def test_others_and_unknown_jobs_are_the_same_404(ada: Client) -> None:
    """Nobody learns whether a job exists by asking for somebody else's."""
    theirs = make_job(tenant="bob")
    answers = [
        client.get(url(job), headers={"Accept": kind})
        for client in (ada, Client())
        for job in (theirs, uuid.uuid4())
        for kind in ("application/json", HTML)
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    for method in (ada.delete, lambda where: ada.post(f"{where}cancel/")):
        assert method(url(theirs)).status_code == 404
    assert Job.objects.get().state == "waiting"


def test_without_an_owner_hook_nobody_sees_anything(settings: Settings) -> None:
    """Closed by default, for superusers too."""
    job = make_job(tenant="ada")
    assert logged_in("ada").get(url(job)).status_code == 404


def test_only_the_listed_fields_are_told(ada: Client) -> None:
    """No argument, result, message, tenant, key or task name leaves by this door."""
    job = ended(
        state=State.FAILED,
        tenant="ada",
        key="secret-key",
        args=("secret-arg",),
        reason="timed_out",
        result='"secret-result"',
        error=json.dumps({"type": "Boom", "message": "secret-message"}),
    )
    document = told(ada, job)
    assert set(document) == FIELDS
    assert document["error"] == {"code": "timed_out"}
    for text in (json.dumps(document), page(ada, job)):
        assert "secret" not in text
        assert "shop.noop" not in text


def test_a_waiting_job_says_when_it_will_start(ada: Client) -> None:
    """The wait is what is ahead over the lane's rate, and asking sooner is no use."""
    job = make_job(tenant="ada", reason="new")
    take_snapshot("default")
    before = timezone.now() - timedelta(hours=1)
    LaneSnapshot.objects.update(
        ready=201,
        completions_per_second=10,
        running=4,
        slots=4,
        oldest_due_at=before,
        # However slow this machine is, it is not stale when it is looked at.
        taken_at=timezone.now() + timedelta(minutes=1),
    )
    answer = ada.get(url(job))
    document = answer.json()
    assert (document["state"], document["reason"], document["over"]) == ("waiting", "new", False)
    assert document["predicted_wait"] == pytest.approx(20, abs=1)
    assert answer["Retry-After"] == str(document["retry_after"])
    assert 15 <= document["retry_after"] <= 21
    assert "It starts in about" in page(ada, job)


def test_what_is_not_known_is_not_predicted(ada: Client) -> None:
    """No snapshot: no wait, and a moderate pace for asking."""
    job = make_job(tenant="ada")
    document = told(ada, job)
    assert (document["predicted_wait"], document["retry_after"]) == (None, 5)
    assert "It will start as soon as it can." in page(ada, job)


def test_a_running_job_shows_its_progress_and_attempt(ada: Client) -> None:
    """As the body told it last."""
    job = running(tenant="ada", done=3, total=10, starts=2)
    document = told(ada, job)
    assert document["progress"] == {"done": 3, "total": 10}
    assert document["attempt"] == 2
    found = page(ada, job)
    assert '<progress max="100" value="30"' in found
    assert "3 of 10" in found
    assert "attempt 2" in found


def test_a_succeeded_job_links_to_its_result(ada: Client) -> None:
    """By the site's hook, and all of its work is done."""
    job = ended(tenant="ada", key="k1", done=7, total=10)
    answer = ada.get(url(job))
    assert answer.json()["result"] == "/results/k1"
    assert answer.json()["progress"] == {"done": 10, "total": 10}
    assert "Retry-After" not in answer
    assert '<a href="/results/k1">' in page(ada, job)
    assert "data-guard-after" not in page(ada, job)


def test_what_has_not_changed_is_not_told_again(ada: Client) -> None:
    """The tag stands while the job does, whatever the prediction; then it changes."""
    job = sent(tenant="ada")
    first = ada.get(url(job))
    take_snapshot("default")
    again = ada.get(url(job), headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "Retry-After" in again
    assert first["Cache-Control"] == "private, no-cache"
    assert {"Accept", "Cookie"} <= {name.strip() for name in first["Vary"].split(",")}
    Job.objects.update(done=1, total=2)
    assert ada.get(url(job), headers={"If-None-Match": first["ETag"]}).status_code == 200


def test_programs_get_json_and_browsers_get_html(ada: Client) -> None:
    """Whoever accepts anything is a program."""
    job = make_job(tenant="ada")
    for accept in ("", "*/*", "application/json"):
        assert ada.get(url(job), headers={"Accept": accept} if accept else {})["Content-Type"] == (
            "application/json"
        )
    assert ada.get(url(job), headers={"Accept": HTML})["Content-Type"].startswith("text/html")


def test_the_page_needs_no_script_and_no_inline_code(ada: Client) -> None:
    """It reloads itself where scripts are off; a strict policy has nothing to object to."""
    found = page(ada, make_job(tenant="ada"))
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in found
    assert "style=" not in found
    assert "<style" not in found
    assert " on" not in found.replace(" one", "")
    assert found.count("<script") == found.count('<script type="module" src=') == 1


@pytest.mark.bar
def test_it_costs_at_most_two_queries(ada: Client) -> None:
    """One for the job, one more for the lanes while it waits; the session's are the site's."""
    for job, most in (
        (make_job(tenant="ada"), 2),
        (running(tenant="ada"), 1),
        (ended(tenant="ada"), 1),
        (ended(state=State.SUPERSEDED, tenant="ada", survivor=running(tenant="ada")), 1),
    ):
        with CaptureQueriesContext(connection) as captured:
            told(ada, job)
        ours = [q["sql"] for q in captured.captured_queries if "celery_guard_" in q["sql"]]
        assert len(ours) <= most, ours


@pytest.mark.parametrize("state", ["superseded", "waiting"])
def test_a_covered_job_shows_the_one_that_does_its_work(ada: Client, state: str) -> None:
    """Superseded by a newer request, or an echo of another task id; also through several."""
    last = running(tenant="ada", done=1, total=4)
    between = ended(state=State.SUPERSEDED, tenant="ada", survivor=last)
    make = make_job if state == "waiting" else ended
    job = make(tenant="ada", state=state, survivor=between)
    document = told(ada, job)
    assert document["id"] == str(job.public_id)
    assert (document["state"], document["progress"]) == ("running", {"done": 1, "total": 4})
    assert document["survivor"] == {"id": str(last.public_id), "url": url(last)}


def test_a_request_that_was_folded_many_times_is_not_over(ada: Client) -> None:
    """However long the line of those that stand for one another, its end is what is shown."""
    line = [ended(state=State.SUPERSEDED, tenant="ada") for _ in range(30)]
    line.append(make_job(tenant="ada"))
    for job, survivor in pairwise(line):
        Job.objects.filter(pk=job.pk).update(survivor=survivor)
    shown = told(ada, line[0])
    assert (shown["state"], shown["over"]) == ("waiting", False)
    Job.objects.filter(pk=line[-1].pk).update(survivor=line[0])
    assert ada.get(url(line[0])).status_code == 200, "a circle ends too"


def test_a_survivor_of_somebody_else_is_not_named(ada: Client) -> None:
    """Its state is the job's; its address is not."""
    job = ended(state=State.SUPERSEDED, tenant="ada", survivor=running(tenant="bob"))
    document = told(ada, job)
    assert (document["state"], document["survivor"]) == ("running", None)
    assert ada.delete(url(job)).status_code == 409
    assert not Job.objects.filter(cancel_asked_at__isnull=False).exists()


def test_a_job_whose_survivor_was_purged_shows_itself(ada: Client) -> None:
    """Rows go; the page stays."""
    job = ended(state=State.SUPERSEDED, tenant="ada", survivor=ended())
    Job.objects.exclude(pk=job.pk).delete()
    assert told(ada, job)["state"] == "superseded"


@pytest.mark.parametrize("how", ["delete", "post"])
def test_a_waiting_job_is_cancelled_at_once(ada: Client, how: str) -> None:
    """Whether it is with the broker already or not, whether it failed before or not."""
    for job in (make_job(tenant="ada"), sent(tenant="ada"), retrying(tenant="ada")):
        answer = ada.delete(url(job)) if how == "delete" else ada.post(f"{url(job)}cancel/")
        assert answer.status_code == 200
        assert answer.json()["state"] == "cancelled"
        assert answer.json()["error"] == {"code": "cancel"}


def test_a_running_job_is_asked_to_stop(ada: Client) -> None:
    """It is told where it looks; until then it runs, and the page says so."""
    job = running(tenant="ada")
    answer = ada.delete(url(job))
    assert answer.status_code == 202
    assert (answer.json()["state"], answer.json()["cancel_asked"]) == ("running", True)
    asked = Job.objects.get().cancel_asked_at
    assert ada.delete(url(job)).status_code == 202
    assert Job.objects.get().cancel_asked_at == asked
    found = page(ada, job)
    assert "A stop was asked for." in found
    assert "<form" not in found


def test_an_ended_job_stays_as_it_is(ada: Client) -> None:
    """The answer says how it ended."""
    answer = ada.delete(url(ended(tenant="ada")))
    assert (answer.status_code, answer.json()["state"]) == (409, "succeeded")


def test_a_browser_comes_back_to_the_page(ada: Client) -> None:
    """After its form, whatever became of the job."""
    job = make_job(tenant="ada")
    answer = ada.post(f"{url(job)}cancel/", headers={"Accept": HTML})
    assert (answer.status_code, answer["Location"]) == (303, url(job))
    assert "Cancelled" in page(ada, job)


def test_a_site_can_forbid_cancelling(ada: Client, site: Settings) -> None:
    """Then there is no button, and the request is refused."""
    status = {**site.CELERY_GUARD["status"], "cancel": False}
    site.CELERY_GUARD = {**site.CELERY_GUARD, "status": status}
    job = make_job(tenant="ada")
    assert ada.delete(url(job)).status_code == 403
    assert "<form" not in page(ada, job)
    assert Job.objects.get().state == "waiting"


def test_changes_need_a_csrf_token_and_reading_takes_no_post(ada: Client) -> None:
    """Another site's form can cancel nothing, and no link can."""
    job = make_job(tenant="ada")
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = ada.cookies
    assert strict.delete(url(job)).status_code == 403
    assert strict.post(f"{url(job)}cancel/").status_code == 403
    assert ada.get(f"{url(job)}cancel/").status_code == 405
    assert ada.post(url(job)).status_code == 405
    assert Job.objects.get().state == "waiting"


def test_a_finished_job_says_when(ada: Client) -> None:
    """All times are those of the ledger, as ISO 8601."""
    job = ended(tenant="ada", started_at=timezone.now())
    document = told(ada, job)
    assert document["finished_at"] == Job.objects.get().finished_at.isoformat()
    assert document["over"] is True
