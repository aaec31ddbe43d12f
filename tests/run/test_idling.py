"""A transaction that has locked a job and stands still is ended by the server, and the job comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import DatabaseError, connection, transaction

from celery_guard import faults
from celery_guard.jobs import claiming, idling, rescuing, running
from celery_guard.jobs.idling import brief
from celery_guard.jobs.named import NamedJob
from celery_guard.models import Job
from celery_guard.run.owner import owner
from tests.factories import make_job
from tests.kit.wait import wait_for
from tests.project.shop import tasks
from tests.run.delivery import deliver, job_of, send
from tests.run.marks import on_database
from tests.run.sessions import elsewhere, session
from tests.run.tasks import ACTIONS, in_body, in_steps, refresh_seldom

pytestmark = [*on_database, pytest.mark.mariadb]

SHOW = {
    "postgresql": "SHOW idle_in_transaction_session_timeout",
    "mysql": "SELECT @@SESSION.idle_transaction_timeout",
}
SET = {
    "postgresql": "SET idle_in_transaction_session_timeout = '{s}s'",
    "mysql": "SET SESSION idle_transaction_timeout = {s}",
}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idling, "SECONDS", 1.0)


def stand_still(job: Job) -> None:
    """Ask the server for nothing, as if this host were gone, until the row can be had elsewhere."""
    seen: list[bool] = []

    def look() -> None:
        with transaction.atomic():
            seen.append(Job.objects.filter(pk=job.pk).select_for_update(skip_locked=True).exists())

    def is_free() -> bool:
        elsewhere(look)()
        return seen[-1]

    assert not is_free(), "it was not locked"
    wait_for(is_free, what="the server to end the session")


@contextlib.contextmanager
def still_at(point: str, job: Job) -> Iterator[list[str]]:
    """The first time that ``point`` is passed, nothing comes from here for a while."""
    stood: list[str] = []

    def react(passed: str, jobs: tuple[int, ...]) -> None:
        if passed == point and not stood:
            stood.append(passed)
            stand_still(job)

    with faults.reacting(react):
        yield stood


def bound() -> str:
    """The session's bound on idle transactions."""
    with connection.cursor() as cursor:
        cursor.execute(SHOW[connection.vendor])
        return str(cursor.fetchone()[0])


def test_a_finish_that_stands_still_gives_the_job_back(scratch: Path) -> None:
    """The worker's host is gone in the midst of `finish()`: nobody waits hours for its row."""
    job = job_of(in_steps.delay("a"))
    ACTIONS["a.within"] = lambda: stand_still(job)
    deliver(job)
    job.refresh_from_db()
    assert (job.state, job.reason, job.failures) == ("waiting", "retry", 1)


def test_an_end_that_is_not_committed_gives_the_job_back(scratch: Path) -> None:
    """Between the end's statement and its COMMIT, where the two are not one message."""
    job = job_of(refresh_seldom.delay("a"))
    with still_at("run.finishing", job) as stood:
        deliver(job)
    job.refresh_from_db()
    assert stood
    assert (job.state, job.reason) == ("waiting", "retry")


def test_an_end_without_success_is_written_all_the_same(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session in which it stood still is gone; the next one writes it."""
    job, stood = job_of(tasks.verdict.delay("a", "permanent")), []
    remember = running.remember

    def slowly(hold: running.Hold, history: running.History) -> None:
        remember(hold, history)
        if not stood:
            stood.append(True)
            stand_still(job)

    monkeypatch.setattr(running, "remember", slowly)
    deliver(job)
    job.refresh_from_db()
    assert stood
    assert job.state == "failed"


def test_a_rescue_that_stands_still_lets_go(scratch: Path) -> None:
    """Another one can take the lease away."""
    job = make_job()
    send(job)
    claimed = claiming.claim("default", NamedJob(job.pk), owner=owner(), lease=-1)
    assert claimed is not None
    with still_at("run.rescuing", job) as stood, pytest.raises(DatabaseError):
        rescuing.rescue("default", job.lane, limit=3)
    assert stood
    assert [lost.job_id for lost in rescuing.rescue("default", job.lane, limit=3)] == [job.pk]


@pytest.mark.parametrize("ends", [in_steps, refresh_seldom])
def test_the_session_is_what_it_was(scratch: Path, ends: Callable[..., object]) -> None:
    """Its own bound counts again behind the job, and the session is kept."""
    with connection.cursor() as cursor:
        cursor.execute(SET[connection.vendor].format(s=90))
    before = (session(), bound())
    job = job_of(ends.delay("a"))  # type: ignore[attr-defined]
    deliver(job)
    assert (session(), bound()) == before


def test_a_body_may_take_its_time(scratch: Path) -> None:
    """While it has locked no job, nothing bounds its transaction but the site's own."""
    job, before, seen = job_of(in_body.delay("a")), bound(), []
    ACTIONS["a"] = lambda: seen.append(bound())
    deliver(job)
    assert seen == [before]


def test_a_shorter_bound_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the site has set for its role or session is not made longer."""
    with connection.cursor() as cursor:
        cursor.execute(SET[connection.vendor].format(s=30))
    monkeypatch.setattr(idling, "SECONDS", 60.0)
    before = bound()
    with brief("default"):
        assert bound() == before


def test_somebody_elses_transaction_is_left_alone() -> None:
    """It goes on after ours, with bodies that may stand still."""
    before = bound()
    with transaction.atomic():
        with brief("default"):
            pass
        assert bound() == before
