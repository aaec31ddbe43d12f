"""What the ledger does when the database ends one of its transactions for a deadlock."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, transaction

from celery_guard.jobs import cancelling, folding
from celery_guard.models import Job
from celery_guard.settle.moves import look_again, wait_for_answer
from tests.factories import make_job
from tests.jobs.requests import ask, begin, held_elsewhere, send, state
from tests.kit.rival import rival

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]


def _lock(job: Job) -> Callable[[], object]:
    return lambda: Job.objects.select_for_update().get(pk=job.pk)


def test_a_cancel_that_loses_a_deadlock_is_done_again() -> None:
    """It has the request and waits for the one that steps in; whoever has that wants the request."""
    older, newest = ask(), ask()
    assert send() == [newest.pk]
    with rival(_lock(older), _lock(newest)):
        assert cancelling.ask("default", newest.public_id) == "cancelled"
    assert (state(newest), state(older)) == ("cancelled", "waiting")


def test_a_cancel_in_a_transaction_of_the_site_is_not_repeated() -> None:
    """Only the site can begin that anew: it hears of the deadlock, and nothing of it is kept."""
    older, newest = ask(), ask()
    assert send() == [newest.pk]
    with rival(_lock(older), _lock(newest)), pytest.raises(OperationalError), transaction.atomic():
        cancelling.ask("default", newest.public_id)
    assert (state(newest), state(older)) == ("waiting", "superseded")


def test_a_fold_that_loses_a_deadlock_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB can have it wait in its midst: whoever comes by another index has entries locked."""
    other, older, newest = make_job(lane="low"), ask(), ask()
    looks = folding._busy

    def look_and_meet(*given: Any) -> Any:
        monkeypatch.setattr(folding, "_busy", looks)
        _lock(other)()
        return looks(*given)

    monkeypatch.setattr(folding, "_busy", look_and_meet)
    with rival(_lock(other), _lock(newest)):
        assert send() == [newest.pk]
    assert state(older) == "superseded"


def test_a_job_that_somebody_decides_on_keeps_no_look_waiting() -> None:
    """The reconciler takes the jobs that nobody holds, so it can wait for nobody in a circle."""
    held, free = (make_job(), make_job())
    for job in (held, free):
        send()
        assert wait_for_answer(begin(job).hold)
    with held_elsewhere(_lock(held), commit=True):
        assert look_again("default", ["high"], 10) == 1
    assert (state(held), state(free)) == ("reconciling", "waiting")
