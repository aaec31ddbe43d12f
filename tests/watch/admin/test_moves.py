"""Replay and cancel: permitted, confirmed, bounded, and only where the state still allows."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.db import connection, connections, transaction
from django.http import HttpResponse
from django.test import Client

from celery_guard.events import Event
from celery_guard.jobs.states import State
from celery_guard.models import Job
from celery_guard.outbox import hook
from celery_guard.watch.admin.moves import JOBS_MOST
from tests.factories import make_job
from tests.watch.admin.operators import Operator
from tests.watch.admin.pages import JOBS, text
from tests.watch.admin.test_dashboard import unanswered
from tests.watch.rows import ended, running, sent

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]


def post(
    client: Client, move: str, jobs: Iterable[Job], *, confirmed: bool = True, **more: object
) -> HttpResponse:
    """Select ``jobs``, choose ``move``, and confirm it."""
    data = {"action": move, "index": 0, "_selected_action": [job.pk for job in jobs], **more}
    return client.post(JOBS, {**data, **({"confirmed": "yes"} if confirmed else {})})


def told_user(answer: HttpResponse) -> list[str]:
    return [str(message) for message in get_messages(answer.wsgi_request)]


def state(job: Job) -> str:
    return Job.objects.get(pk=job.pk).state


def test_a_dead_job_waits_again_under_its_key_and_fenced(operator: Operator) -> None:
    """Same row, same message, budgets anew; an old attempt's writes are void."""
    job = ended(state=State.DEAD, key="invoice:7", failures=10, fence=3)
    answer = post(operator("replay_job"), "replay_jobs", [job])
    found = Job.objects.get(pk=job.pk)
    assert (found.state, found.reason, found.failures) == ("waiting", "replay", 0)
    assert (found.key, found.message_id) == ("invoice:7", job.message_id)
    assert found.fence == 4
    assert found.due_at is not None
    assert told_user(answer) == ["Replay jobs: 1 of 1 job moved."]


def test_only_what_ended_without_success_is_replayed(operator: Operator) -> None:
    """And the answer says how many did move."""
    again = [ended(state=s) for s in (State.FAILED, State.DEAD, State.CANCELLED, State.EXPIRED)]
    stay = [ended(), ended(state=State.SUPERSEDED), make_job(), running()]
    stay.append(ended(state=State.FAILED, message=None))
    before = [state(job) for job in stay]
    answer = post(operator("replay_job"), "replay_jobs", [*again, *stay])
    assert [state(job) for job in again] == ["waiting"] * 4
    assert [state(job) for job in stay] == before
    assert told_user(answer) == ["Replay jobs: 4 of 9 jobs moved."]


def test_an_effect_without_an_answer_is_settled_before_a_replay(operator: Operator) -> None:
    """The job stays dead until somebody has said what happened."""
    job = ended(state=State.DEAD)
    unanswered(job=job)
    answer = post(operator("replay_job"), "replay_jobs", [job])
    assert state(job) == "dead"
    assert told_user(answer) == ["Replay jobs: 0 of 1 job moved."]


def test_what_runs_is_asked_to_stop(operator: Operator) -> None:
    """Nobody needs to own it; the answer says how many were asked, and the admin's log who did."""
    asked = [running(), running(state=State.RECONCILING)]
    jobs = [make_job(), *asked, ended()]
    client = operator("cancel_job")
    assert "Running, to be asked to stop: 2." in text(
        post(client, "cancel_jobs", jobs, confirmed=False)
    )
    assert not Job.objects.filter(cancel_asked_at__isnull=False).exists()
    answer = post(client, "cancel_jobs", jobs)
    told = Job.objects.filter(cancel_asked_at__isnull=False)
    assert set(told.values_list("pk", flat=True)) == {job.pk for job in asked}
    assert [state(job) for job in asked] == ["running", "reconciling"]
    assert told_user(answer) == ["Cancel jobs: 1 of 4 jobs moved. 2 that run were asked to stop."]
    assert LogEntry.objects.count() == 3


def test_only_what_waits_is_cancelled(operator: Operator) -> None:
    """Sent or not; what runs or has ended stays."""
    go = [make_job(), sent(), make_job(due_in=60)]
    stay = [running(), ended(), ended(state=State.DEAD)]
    before = [state(job) for job in stay]
    post(operator("cancel_job"), "cancel_jobs", [*go, *stay])
    assert [state(job) for job in go] == ["cancelled"] * 3
    assert [state(job) for job in stay] == before


def test_a_double_click_moves_once(operator: Operator) -> None:
    """The second finds the job waiting already."""
    client, job = operator("replay_job"), ended(state=State.DEAD)
    post(client, "replay_jobs", [job])
    answer = post(client, "replay_jobs", [job])
    assert Job.objects.get(pk=job.pk).fence == 1
    assert told_user(answer)[-1] == "Replay jobs: 0 of 1 job moved."


def test_the_first_click_only_asks(operator: Operator) -> None:
    """The confirmation names the jobs and how many of them can move; nothing has moved."""
    job, done = ended(state=State.DEAD, key="invoice:7"), ended()
    answer = post(operator("replay_job"), "replay_jobs", [job, done], confirmed=False)
    assert "1 of 2 can be moved now." in text(answer)
    assert "invoice:7" in text(answer)
    assert state(job) == "dead"


@pytest.mark.parametrize("move", ["replay_jobs", "cancel_jobs"])
@pytest.mark.parametrize("confirmed", [True, False])
def test_without_the_permission_a_direct_post_gets_403(
    operator: Operator, move: str, confirmed: bool
) -> None:
    """The right to view, and even the other move's right, is not enough."""
    other = "cancel_job" if move == "replay_jobs" else "replay_job"
    job = ended(state=State.DEAD) if move == "replay_jobs" else make_job()
    before = state(job)
    for client in (operator(), operator(other)):
        assert post(client, move, [job], confirmed=confirmed).status_code == 403
    assert state(job) == before


def test_a_move_without_the_right_to_view_is_refused(operator: Operator) -> None:
    """Nobody moves what he may not see."""
    job = make_job()
    assert post(operator("cancel_job", view=False), "cancel_jobs", [job]).status_code == 403
    assert state(job) == "waiting"


def test_a_link_moves_nothing(operator: Operator) -> None:
    """GET with the same fields is a list."""
    job = make_job()
    client = operator("cancel_job")
    client.get(JOBS, {"action": "cancel_jobs", "_selected_action": job.pk, "confirmed": "yes"})
    assert state(job) == "waiting"


def test_a_forged_post_without_its_token_is_refused(operator: Operator) -> None:
    """Cross-site request forgery protection holds for the moves."""
    job, client = make_job(), operator("cancel_job")
    client.handler.enforce_csrf_checks = True
    assert post(client, "cancel_jobs", [job]).status_code == 403
    assert state(job) == "waiting"


def test_more_than_the_most_or_everything_is_refused(operator: Operator) -> None:
    """One request never loops over a table."""
    client, job = operator("cancel_job"), make_job()
    many = [Job(pk=n) for n in range(JOBS_MOST)]
    answer = post(client, "cancel_jobs", [job, *many])
    assert told_user(answer) == ["At most 100 jobs can be moved at once."]
    post(client, "cancel_jobs", [job], select_across="1")
    assert state(job) == "waiting"


def test_who_moved_what_is_kept(operator: Operator, told: list[Event]) -> None:
    """One audit entry a job that moved, none for those that did not, and an event."""
    moved, stayed = ended(state=State.DEAD), ended()
    post(operator("replay_job"), "replay_jobs", [moved, stayed])
    entries = LogEntry.objects.values_list("object_id", "change_message")
    assert list(entries) == [(str(moved.pk), "Replay jobs")]
    (event,) = told
    assert event.facts["jobs"] == 1
    assert event.facts["move"] == "replay_jobs"


def test_a_replay_wakes_the_relay_of_its_lane(
    operator: Operator, django_capture_on_commit_callbacks: object
) -> None:
    """As an enqueue does, after the commit."""
    woken: list[tuple[set[str], str]] = []
    listener = lambda lanes, using: woken.append((set(lanes), using))  # noqa: E731
    hook.on_committed(listener)
    try:
        with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
            post(operator("replay_job"), "replay_jobs", [ended("low", State.DEAD)])
    finally:
        hook._listeners.remove(listener)
    assert woken == [({"low"}, "default")]


@pytest.mark.django_db(transaction=True)
def test_a_job_that_somebody_holds_is_left_alone(operator: Operator) -> None:
    """A row locked by a claim or a release is about to move by itself: the page doesn't wait."""
    if not connection.features.has_select_for_update_skip_locked:
        pytest.skip("this database can't skip locked rows")
    job, free = make_job(), make_job()
    client = operator("cancel_job")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Job.objects.select_for_update().get(pk=job.pk)
                held.set()
                done.wait(30)
        finally:
            connections.close_all()

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)
    try:
        answer = post(client, "cancel_jobs", [job, free])
    finally:
        done.set()
        holder.join()
    assert told_user(answer) == ["Cancel jobs: 1 of 2 jobs moved."]
    assert (state(job), state(free)) == ("waiting", "cancelled")
