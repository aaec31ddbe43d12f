"""The page of one job: everything about it, nothing that it carries, nothing to change."""

from __future__ import annotations

import json

import pytest
from django.test import Client
from django.utils import timezone

from celery_guard.jobs.states import State
from celery_guard.models import Attempt, Job, OutboxMessage
from tests.factories import envelope, make_job
from tests.watch.admin.operators import Operator
from tests.watch.admin.pages import ATTEMPTS, JOBS, MESSAGES, bounded_queries, get, text
from tests.watch.rows import ended

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]

MARKUP = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"


def page(client: Client, job: Job) -> str:
    with bounded_queries():
        answer = client.get(f"{JOBS}{job.pk}/change/")
    assert answer.status_code == 200
    return text(answer)


def attempt(job: Job, number: int, **changes: object) -> Attempt:
    told = {"outcome": "retry", "reason": "retry", "error": "ConnectionError: no route"}
    return Attempt.objects.create(
        job=job, number=number, ended_at=timezone.now(), **{**told, **changes}
    )


def test_the_timeline_tells_every_attempt(viewer: Client) -> None:
    """Newest first, with its error and its worker."""
    job = ended(state=State.DEAD, reason="budget", starts=2)
    attempt(job, 1, worker="worker-a")
    attempt(job, 2, outcome="dead", reason="budget", error="ConnectionError: gave up")
    found = page(viewer, job)
    assert found.index("gave up") < found.index("no route")
    assert "worker-a" in found
    assert "dead (budget)" in found


def test_a_job_without_attempts_or_message_says_so(viewer: Client) -> None:
    """Purged and plainly succeeded jobs have neither."""
    job = ended(message=None)
    found = page(viewer, job)
    assert "The message has been purged" in found
    assert "None" in found


def test_nothing_on_it_can_be_edited(admin_client: Client) -> None:
    """Task, lane and payload are read-only: editing them would be running code by hand."""
    job = make_job()
    found = page(admin_client, job)
    assert 'name="_save"' not in found
    assert 'name="task"' not in found
    answer = admin_client.post(f"{JOBS}{job.pk}/change/", {"task": "os.system"})
    assert answer.status_code == 403
    assert admin_client.post(f"{JOBS}{job.pk}/delete/", {"post": "yes"}).status_code == 403
    assert Job.objects.get(pk=job.pk).task == "shop.noop"


def test_arguments_bodies_and_results_are_nowhere(viewer: Client) -> None:
    """Neither as the body, nor as Celery's readable copies of it, nor as the return value."""
    job = ended(args=("secret-body",), result=json.dumps("secret-result"))
    text_of = envelope(str(job.public_id), "shop.noop", "high")
    stored = json.loads(text_of)
    stored["headers"] |= {
        "argsrepr": "('secret-args',)",
        "kwargsrepr": "{'secret': 'kwargs'}",
        "baggage": "secret-baggage",
    }
    OutboxMessage.objects.filter(pk=job.message_id).update(envelope=json.dumps(stored))
    for found in (
        page(viewer, job),
        text(get(viewer, f"{MESSAGES}{job.message_id}/change/")),
        text(get(viewer, MESSAGES)),
        text(get(viewer, JOBS)),
    ):
        assert "secret" not in found
    assert "baggage" in page(viewer, job)
    assert "15 characters, not shown" in page(viewer, job)


def test_markup_is_escaped_wherever_it_comes_from(admin_client: Client) -> None:
    """Task, key, tenant, lane, error, reason, worker, message headers: all of it is text."""
    error = json.dumps({"type": MARKUP, "message": MARKUP, "state": "dead", "reason": "budget"})
    job = ended(
        lane=MARKUP,
        state=State.DEAD,
        task=MARKUP,
        key=MARKUP,
        tenant=MARKUP,
        reason="<b>",
        error=error,
        queue=MARKUP,
    )
    broken = ended(state=State.DEAD, error=f"not json {MARKUP}")
    made = attempt(job, 1, error=MARKUP, worker=MARKUP, outcome="<b>", reason="<i>")
    confirm = {"action": "replay_jobs", "index": 0, "_selected_action": job.pk}
    pages = [
        page(admin_client, job),
        page(admin_client, broken),
        text(get(admin_client, JOBS)),
        text(get(admin_client, ATTEMPTS)),
        text(get(admin_client, f"{ATTEMPTS}{made.pk}/change/")),
        text(get(admin_client, MESSAGES)),
        text(get(admin_client, f"{MESSAGES}{job.message_id}/change/")),
        text(admin_client.post(JOBS, confirm)),
        text(admin_client.get(f"{JOBS}{job.pk}/history/")),
    ]
    for found in pages:
        assert MARKUP not in found
        assert "<b>" not in found
    assert ESCAPED in pages[0]


def test_an_echo_points_at_its_survivor(viewer: Client) -> None:
    """The link leads to the job that stands for it."""
    survivor = make_job()
    echo = make_job(survivor_id=survivor.pk)
    assert f"{JOBS}{survivor.pk}/change/" in page(viewer, echo)


def test_only_possible_and_permitted_moves_are_offered(operator: Operator) -> None:
    """A waiting job can be cancelled, a dead one replayed; a viewer is offered nothing."""
    both = operator("replay_job", "cancel_job")
    waiting, dead, done = make_job(), ended(state=State.DEAD), ended()
    assert 'value="cancel_jobs"' in page(both, waiting)
    assert 'value="replay_jobs"' not in page(both, waiting)
    assert 'value="replay_jobs"' in page(both, dead)
    assert "_jobs" not in page(both, done)
    assert "_jobs" not in page(operator(), dead)


def test_looking_writes_nothing(viewer: Client) -> None:
    """No page changes a row of the ledger."""
    job = ended(state=State.DEAD)
    before = list(Job.objects.values())
    page(viewer, job)
    get(viewer, JOBS)
    assert list(Job.objects.values()) == before
