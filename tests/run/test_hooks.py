"""What a block leaves for after its commit runs, also where the commit itself was not seen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from django.db import OperationalError, connection, transaction

from celery_guard import current_job, guarded_task
from celery_guard.jobs import begin_and_commit
from celery_guard.models import Job
from tests.run.delivery import deliver, job_of, state_of
from tests.run.marks import on_database
from tests.run.tasks import ACTIONS, in_body, in_steps

pytestmark = [*on_database, pytest.mark.mariadb]


@guarded_task(key="goes-on:{name}", atomic=False)
def goes_on(name: str) -> None:
    """Takes no notice of what comes out of its `finish()`."""
    with contextlib.suppress(SoftTimeLimitExceeded), current_job().finish():
        ACTIONS.pop(f"{name}.within")()


Break = Callable[[pytest.MonkeyPatch, BaseException], None]


def after_the_message(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    """End and COMMIT have arrived, and Django knows nothing of it."""
    if connection.vendor != "postgresql":
        pytest.skip("elsewhere there is no such message")
    usual = begin_and_commit.committed_with

    def committed_with(*args: Any, **options: Any) -> bool:
        patch.setattr(begin_and_commit, "committed_with", usual)
        usual(*args, **options)
        raise error

    patch.setattr(begin_and_commit, "committed_with", committed_with)


def after_djangos_commit(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Django's own COMMIT, when it has arrived."""
    usual = connection._commit

    def commit() -> None:
        done = usual()
        # Not the commits after this one: of what becomes of it, for instance.
        connection._commit = usual
        if Job.objects.filter(state="succeeded").exists():
            raise error
        return done

    patch.setattr(connection, "_commit", commit)


def before_the_end(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Nothing is committed."""

    def record(*args: Any, **options: Any) -> bool:
        raise error

    patch.setattr("celery_guard.run.ending.record", record)


def hooked(task: Any, patch: pytest.MonkeyPatch, at: Break, error: BaseException) -> Any:
    """The job, the answer, and which of its hooks have run."""
    ran: list[str] = []
    name = "a" if task is in_body else "a.within"

    def act() -> None:
        transaction.on_commit(lambda: ran.append("one"))
        transaction.on_commit(lambda: ran.append("two"), robust=True)
        at(patch, error)

    ACTIONS[name] = act
    job = job_of(task.delay("a"))
    answer = deliver(job)
    job.refresh_from_db()
    return job, answer, ran


@pytest.mark.parametrize("task", [in_body, in_steps])
@pytest.mark.parametrize("at", [after_the_message, after_djangos_commit])
@pytest.mark.parametrize("error", [SoftTimeLimitExceeded(), OperationalError("answer lost")])
def test_the_hooks_of_a_commit_that_was_not_seen_run_once(
    task: Any, at: Break, error: BaseException, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A soft time limit, or a lost answer, in between: the job has succeeded and so has its block."""
    job, answer, ran = hooked(task, monkeypatch, at, error)
    assert (job.state, state_of(answer)) == ("succeeded", "SUCCESS")
    assert ran == ["one", "two"]


@pytest.mark.parametrize("task", [in_body, in_steps])
def test_the_hooks_of_what_was_rolled_back_never_run(
    task: Any, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is known to be committed has hooks."""
    job, _, ran = hooked(task, monkeypatch, before_the_end, SoftTimeLimitExceeded())
    assert (job.state, job.reason) == ("failed", "timed_out")
    assert ran == []


@pytest.mark.parametrize("at", [after_the_message, after_djangos_commit])
def test_a_body_that_goes_on_after_the_limit_keeps_its_hooks(
    at: Break, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not let the exception out of `finish()` through, and returns."""
    job, _, ran = hooked(goes_on, monkeypatch, at, SoftTimeLimitExceeded())
    assert job.state == "succeeded"
    assert ran == ["one", "two"]


def test_hooks_that_have_begun_are_not_run_again(scratch: Path) -> None:
    """One that fails keeps the later ones from running, as everywhere in Django."""
    ran: list[str] = []

    def fails() -> None:
        ran.append("one")
        raise ValueError("hook")

    def act() -> None:
        transaction.on_commit(fails)
        transaction.on_commit(lambda: ran.append("two"))

    ACTIONS["a"] = act
    deliver(job_of(in_body.delay("a")))
    assert ran == ["one"]
