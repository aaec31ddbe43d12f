"""What a call hides stays hidden when the body fails: in the ledger, in events, and to Celery."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest

from celery_guard.enqueue.hiding import HIDDEN, veil
from celery_guard.enqueue.rollout import reading
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.models import Attempt, Effect, Job, Mismatch
from celery_guard.settle.reconcile import reconcile
from tests.enqueue.rollout.stages import set_to
from tests.enqueue.rows import headers_of
from tests.flows.confiding import HIDDEN as BY_CALL
from tests.flows.confiding import confide, keep, look_up, mark_of, pass_on, pay
from tests.kit.told import told
from tests.project.shop.witness import traces
from tests.run.delivery import deliver, job_of
from tests.run.marks import on_database
from tests.run.served import broker_is_away

pytestmark = [*on_database, pytest.mark.mariadb, pytest.mark.usefixtures("scratch")]

SECRET = "swordfish-4111-1111"
OTHERS = ["again", "others", "celery", "quietly", "quote"]


@pytest.fixture(autouse=True)
def _nothing_known() -> Any:
    reading.forget()
    yield
    reading.forget()


def stored() -> str:
    """All that the ledger keeps of jobs, but for the bodies of messages."""
    rows = [row for model in (Job, Attempt, Effect, Mismatch) for row in model.objects.values()]
    return "\n".join([*map(repr, rows), *(repr(headers_of(job)) for job in Job.objects.all())])


def printed(error: BaseException) -> str:
    """As Celery logs it, with its causes."""
    return "".join(traceback.format_exception(error))


@pytest.mark.bar
@pytest.mark.parametrize("way", ["quote", "cause", "file", "row"])
def test_an_error_does_not_quote_what_the_task_hides(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The ledger, Celery's answer and log line, and the event tell of the failure without it."""
    with told() as heard, caplog.at_level(logging.DEBUG, "celery.app.trace"):
        job = job_of(keep.delay("a", SECRET, [way]))
        answer = deliver(job)
    assert traces("a") == [mark_of(SECRET)]
    job.refresh_from_db()
    assert job.state == "failed"
    assert caplog.records, "Celery has logged it"
    logged = [caplog.text, *(repr(vars(record)) for record in caplog.records)]
    for text in (stored(), printed(answer.info.retval), *logged, repr(heard)):
        assert SECRET not in text


def test_a_part_of_it_that_the_database_quotes_is_not_told() -> None:
    """PostgreSQL cuts the values of a row that it refuses."""
    job = job_of(keep.delay("a", SECRET * 10, ["row"]))
    deliver(job)
    job.refresh_from_db()
    assert "IntegrityError" in str(job.error)
    assert SECRET not in stored()


class Stubborn(Exception):
    """Lets nobody change anything."""

    def __setattr__(self, name: str, value: object) -> None:
        raise RuntimeError(name)


def test_an_exception_that_refuses_stops_nothing() -> None:
    """Its cause is cleaned all the same, and whoever writes the end down goes on."""
    with pytest.raises(Stubborn) as caught:
        raise Stubborn(SECRET) from ValueError(SECRET)
    veil(caught.value, [SECRET])
    assert str(caught.value.__cause__) == HIDDEN


def test_what_hides_nothing_is_told_as_it_is() -> None:
    """An error that quotes an argument is what a developer looks for."""
    job = job_of(confide.delay("plain", SECRET, ["fail"]))
    deliver(job)
    job.refresh_from_db()
    assert "nobody there" in str(job.error)
    bare = ValueError(SECRET)
    veil(bare, [])
    assert bare.args == (SECRET,)


def test_attempts_and_copies_of_the_message_do_not_quote_it() -> None:
    """Retried by Celery's `retry`, with the same arguments and with others."""
    job = job_of(keep.delay("a", SECRET, OTHERS))
    for _ in OTHERS:
        deliver(job)
    assert traces("a") == [mark_of(SECRET)] * 5
    assert Attempt.objects.count() == 5
    assert SECRET not in stored()
    assert HIDDEN in headers_of(job)["argsrepr"]


def test_a_retry_that_names_arguments_hides_what_its_call_hid() -> None:
    """Celery's own copy of a message shows them."""
    job = job_of(pass_on.apply_async(("a", SECRET), **BY_CALL))
    before = job.message_id
    deliver(job)
    assert SECRET not in stored()
    job.refresh_from_db()
    assert job.message_id != before
    assert headers_of(job)["argsrepr"] == BY_CALL["argsrepr"]
    deliver(job)
    assert traces("a") == [mark_of(SECRET)] * 2


def test_a_provider_may_quote_it() -> None:
    """The effect's note is shown to whoever settles it."""
    with told() as heard:
        job = job_of(pay.delay("a", SECRET))
        answer = deliver(job)
    effect = Effect.objects.get()
    assert (effect.state, HIDDEN in effect.note) == ("manual", True)
    for text in (stored(), repr(heard), printed(answer.info.retval)):
        assert SECRET not in text


def test_a_look_up_may_quote_it() -> None:
    """What it says when it is asked what became of the call is kept beside the effect, too."""
    with told() as heard:
        job = job_of(look_up.delay("a", SECRET))
        answers = [deliver(job)]
        Effect.objects.update(look_at=DatabaseNow())
        reconcile("default")
        answers.append(deliver(job))
    assert traces("a-looked") == [mark_of(SECRET)]
    effect = Effect.objects.get()
    assert HIDDEN in effect.note
    for text in (stored(), repr(heard), *(printed(a.info.retval) for a in answers if a.info)):
        assert SECRET not in text


@pytest.mark.parametrize("way", ["", "quote", "row"])
def test_the_fallback_hides_it_too(
    way: str, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The site's own log is Celery's then."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "rollout": {"fallback": {"time": 20.0}}}
    broker_is_away()
    with told() as heard, caplog.at_level(logging.DEBUG):
        handle = keep.submit("a", SECRET, [way])
    assert traces("a") == [mark_of(SECRET)]
    job = job_of(handle)
    assert job.state == ("failed" if way else "succeeded")
    mine = [r for r in caplog.records if not r.name.startswith("django.db")]
    for text in (stored(), repr(heard), *(repr(vars(record)) for record in mine)):
        assert SECRET not in text
    assert SECRET not in "\n".join(record.getMessage() for record in mine)


@pytest.mark.parametrize("ways", [["", "quote"], ["", "result"], ["result", ""], ["", "row"]])
def test_a_comparison_hides_it_too(ways: list[str]) -> None:
    """In its message, and in what is kept of the difference."""
    set_to(keep, "compare")
    with told() as heard:
        keep.submit("a", SECRET, ways)
        deliver(Job.objects.get())
    assert traces("a") == [mark_of(SECRET)] * 2
    assert Mismatch.objects.count() == 1
    kept = [row for model in (Attempt, Mismatch) for row in model.objects.values()]
    headers = headers_of(Job.objects.get())
    for text in (repr(kept), headers["argsrepr"], headers["kwargsrepr"], repr(heard)):
        assert SECRET not in text
