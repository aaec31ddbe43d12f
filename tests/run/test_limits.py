"""A job of a dependency starts when its limits allow, and a refusal costs it nothing."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

import servers
from celery_guard import GuardError, RetryAfter, dependency, guarded_task
from celery_guard.conf import guard_settings
from celery_guard.errors import LimitsAway, Throttled
from celery_guard.events import Event
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.models import Attempt, Job, Limit
from celery_guard.relay.limits import store
from celery_guard.relay.limits.answers import Reading
from celery_guard.relay.limits.rules import MICRO, rules_of
from tests.project.shop.models import Mark
from tests.project.shop.witness import traces
from tests.run.delivery import deliver, job_of, state_of
from tests.run.limited import answers, calls, calls_both, mails, refreshes
from tests.run.marks import on_database
from tests.run.sessions import elsewhere
from tests.run.tasks import ACTIONS, in_body

pytestmark = [pytest.mark.mariadb, *on_database]


@pytest.fixture(autouse=True, params=["redis", "database"])
def form(request: pytest.FixtureRequest, settings: Any) -> Iterator[str]:
    """Every test runs with the limits kept in Redis, and in the database."""
    store._patience.forget()
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "limits": request.param}
    yield request.param
    store._patience.forget()


def limit(settings: Any, name: str, **rules: Any) -> None:
    """Give a dependency other rules for this test."""
    known = {**settings.CELERY_GUARD["dependencies"], name: rules}
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "dependencies": known}


def reading(name: str) -> Reading:
    """How a dependency stands."""
    return store.read([rules_of(name)])[0]


def waits(job: Job) -> float:
    """Seconds until the job is due, by the database's clock."""
    row = Job.objects.filter(pk=job.pk).values_list("due_at", DatabaseNow()).get()
    assert row[0] is not None
    seconds: float = (row[0] - row[1]).total_seconds()
    return seconds


def run(task: Any, *given: Any) -> Job:
    """Deliver one new job and look at its row."""
    job = job_of(task.delay(*given))
    deliver(job)
    job.refresh_from_db()
    return job


@pytest.mark.bar
def test_a_refused_job_waits_for_its_place(settings: Any, scratch: Path) -> None:
    """No body, no failure, no history: waiting for `rate`, due when its token is there."""
    limit(settings, "provider", rate="1/m", burst=1)
    assert run(calls, "a").state == "succeeded"
    second, third = run(calls, "a"), run(calls, "a")
    assert [(j.state, j.reason, j.failures, j.lost) for j in (second, third)] == [
        ("waiting", "rate", 0, 0)
    ] * 2
    assert 40 < waits(second) <= 60
    assert 100 < waits(third) <= 120
    assert len(traces("a")) == 1
    assert not Attempt.objects.exists()
    assert second.dependency == "provider"


def test_the_place_counts_when_the_job_comes_back(settings: Any, scratch: Path) -> None:
    """The second claim runs, though every token until then is promised to somebody."""
    limit(settings, "provider", rate="30/m", burst=1)
    run(calls, "a")
    job = run(calls, "a")
    time.sleep(max(0.0, waits(job)))
    assert run(calls, "newcomer").state == "waiting"
    deliver(job)
    job.refresh_from_db()
    assert (job.state, job.starts) == ("succeeded", 2)


@pytest.mark.bar
def test_a_newer_request_of_a_key_has_the_place_of_the_refused_one(
    settings: Any, scratch: Path
) -> None:
    """Else a key that is asked for again while it waits goes to the end of the line for ever."""
    limit(settings, "provider", rate="1/m", burst=1)
    run(calls, "a")
    refused = run(refreshes, "page")
    assert 40 < waits(refused) <= 60
    # Another key is behind it, and stays there.
    assert 100 < waits(run(refreshes, "other")) <= 120
    assert 40 < waits(run(refreshes, "page")) <= 60


def test_a_job_that_will_have_expired_keeps_no_place(settings: Any, scratch: Path) -> None:
    """Places that nobody comes for push those away that would: under load nothing runs at all."""
    limit(settings, "provider", rate="1/m", burst=1)
    run(calls, "a")
    for _ in range(5):
        job = job_of(calls.apply_async(("a",), expires=30))
        deliver(job)
    assert 40 < waits(run(calls, "a")) <= 60


def test_a_throttled_call_pauses_the_dependency(scratch: Path) -> None:
    """RetryAfter of one job: the others wait as long, at once, and nothing is used up."""
    first = run(answers, "a", "later")
    assert (first.state, first.reason, first.failures) == ("waiting", "snooze", 0)
    second = run(answers, "b", "fine")
    assert (second.state, second.reason) == ("waiting", "rate")
    assert 20 < waits(second) <= 31
    assert traces("b") == []


@pytest.mark.bar
def test_an_open_breaker_parks_jobs(settings: Any, scratch: Path) -> None:
    """What failed counts at the job that failed; who comes later is parked without a failure."""
    limit(settings, "provider", breaker={"samples": 3, "pause": 30})
    failed = [run(answers, "a", "down") for _ in range(3)]
    assert [(job.reason, job.failures) for job in failed] == [("retry", 1)] * 3
    parked = run(answers, "b", "fine")
    assert (parked.state, parked.reason, parked.failures) == ("waiting", "breaker", 0)
    assert waits(parked) > 20
    assert traces("b") == []


@pytest.mark.parametrize("how", ["no", "bug", "fine"])
def test_other_ends_open_nothing(how: str, settings: Any, scratch: Path) -> None:
    """A refusal is an answer, and a bug of ours is not the other side's."""
    limit(settings, "provider", breaker={"samples": 3})
    for _ in range(5):
        run(answers, "a", how)
    assert reading("provider").breaker == "closed"
    assert len(traces("a")) == 5


def test_a_limit_of_ours_is_no_failure_of_theirs(settings: Any, scratch: Path) -> None:
    """Refusals do not open the breaker."""
    limit(settings, "provider", rate="1/h", burst=1, breaker={"samples": 2})
    for _ in range(6):
        run(calls, "a")
    assert reading("provider").breaker == "closed"


def test_a_limit_inside_a_body_is_kept_apart_from_its_transaction(scratch: Path) -> None:
    """A rollback gives no token back: the mail was sent."""
    for name in ("a", "b"):
        assert run(mails, name, "bug").state == "failed"
    assert not Mark.objects.exists()
    third = run(mails, "c")
    assert (third.state, third.reason, third.failures) == ("waiting", "rate", 0)
    assert not Mark.objects.exists()
    assert waits(third) > 600 * 0.5 - 60


def test_a_limit_inside_a_body_blocks_nobody(scratch: Path) -> None:
    """While the body goes on in its transaction, others take from the same dependency."""
    seen = []

    def body() -> None:
        with dependency("mail"):
            pass

        def other() -> None:
            with dependency("mail"):
                seen.append(reading("mail").granted)

        elsewhere(other)()

    ACTIONS["a"] = body
    assert run(in_body, "a").state == "succeeded"
    assert seen == [2]


def test_a_short_wait_is_waited_in_place(settings: Any) -> None:
    """Within `wait` seconds the block is entered; beyond them it raises at once, and says when."""
    limit(settings, "mail", rate="2/s", burst=1)
    with dependency("mail"):
        pass
    with dependency("mail", wait=5):
        pass
    with pytest.raises(Throttled) as refused, dependency("mail", wait=0):
        pass
    assert 0 < refused.value.seconds <= 0.5
    assert reading("mail").granted == 2


def test_the_permit_comes_back_however_the_block_ends(settings: Any) -> None:
    """Left by an exception or in order."""
    limit(settings, "desk", concurrency=1)
    with dependency("desk"):
        assert reading("desk").permits == 1
    with pytest.raises(ZeroDivisionError), dependency("desk"):
        raise ZeroDivisionError
    with dependency("desk", wait=0), pytest.raises(Throttled), dependency("desk", wait=0):
        pass
    assert reading("desk").permits == 0


def test_a_block_blames_its_own_dependency(settings: Any, scratch: Path) -> None:
    """What the block raises is the mail's doing, once; a throttle pauses the mail."""
    limit(settings, "mail", rate="10/s", burst=10, breaker={"samples": 2})
    run(mails, "a", "down")
    run(mails, "b", "down")
    assert reading("mail").breaker == "open"


def test_a_block_is_not_blamed_on_the_tasks_dependency(settings: Any, scratch: Path) -> None:
    """The mail server fails; the provider of the task does not."""
    limit(settings, "mail", rate="10/s", burst=10, breaker={"samples": 2})
    limit(settings, "provider", breaker={"samples": 2})
    for name in ("a", "b"):
        run(calls_both, name)
    assert (reading("mail").breaker, reading("provider").breaker) == ("open", "closed")


def test_a_throttle_in_a_block_pauses_that_dependency(scratch: Path) -> None:
    """The job itself is asked to come back as by any RetryAfter."""
    job = run(mails, "a", "later")
    assert (job.state, job.reason, job.failures) == ("waiting", "snooze", 0)
    assert (reading("mail").throttled, reading("mail").factor) == (1, 0.7)


@pytest.mark.parametrize("shape", ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT"])
def test_a_date_pauses_by_the_servers_clock(shape: str, scratch: Path) -> None:
    """Retry-After as a date, in each of HTTP's forms: the dependency waits until then."""
    text = f"{datetime.now(UTC) + timedelta(seconds=90):{shape}}"
    with pytest.raises(RetryAfter), dependency("mail"):
        raise RetryAfter(text)
    assert 60 * MICRO < reading("mail").paused <= 91 * MICRO
    job = run(mails, "a")
    assert (job.state, job.reason) == ("waiting", "rate")


def test_a_job_is_due_at_a_date_that_it_was_told(scratch: Path) -> None:
    """The job itself too; an hour is the most that a date may put it off."""
    soon = f"{datetime.now(UTC) + timedelta(seconds=90):%a, %d %b %Y %H:%M:%S} GMT"
    ACTIONS["a"], ACTIONS["b"] = _asks_for(soon), _asks_for("Fri, 31 Dec 9999 23:59:59 GMT")
    assert 60 < waits(run(in_body, "a")) <= 90
    assert 3000 < waits(run(in_body, "b")) <= 3600


def _asks_for(text: str) -> Any:
    def body() -> None:
        raise RetryAfter(text)

    return body


def test_an_unknown_dependency_is_an_error_at_definition() -> None:
    """With the nearest known name."""
    with pytest.raises(ImproperlyConfigured, match="did you mean 'provider'"):
        guarded_task(key="x:{n}", dependency="providr")(lambda n: None)
    with pytest.raises(GuardError, match="did you mean 'mail'"), dependency("mial"):
        pass


def test_a_cost_that_can_never_be_paid_is_refused() -> None:
    """More than a burst, none, or no number."""
    for cost in (3, 0, True, 1.5):
        with pytest.raises(GuardError, match="cost"), dependency("mail", cost=cost):  # type: ignore[arg-type]
            pass


@pytest.mark.django_db(transaction=False)
def test_a_test_cases_transaction_is_enough(form: str) -> None:
    """Where a test case's transaction surrounds everything, limits hold in it and go with it."""
    with transaction.atomic():
        with dependency("mail"), dependency("mail"):
            pass
        with pytest.raises(Throttled), dependency("mail"):
            pass
    if form == "database":
        assert elsewhere_count() == 0


def elsewhere_count() -> int:
    """The limits' rows as another connection sees them."""
    found: list[int] = []
    elsewhere(lambda: found.append(Limit.objects.count()))()
    return found[0]


class TestAway:
    """The store of the limits does not answer."""

    @pytest.fixture(autouse=True)
    def _only_redis(self, form: str) -> None:
        if form != "redis":
            pytest.skip("without the database there is no job either")

    @pytest.mark.bar
    def test_nobody_calls_and_nothing_is_used_up(
        self, settings: Any, own_redis: servers.Private, scratch: Path, heard: list[Event]
    ) -> None:
        """Jobs wait a few seconds; one time-out is paid, not one for each; then all goes on."""
        settings.CELERY_GUARD = {**settings.CELERY_GUARD, "redis": own_redis.url}
        assert run(calls, "a").state == "succeeded"
        own_redis.kill()
        jobs = [run(calls, "b") for _ in range(20)]
        assert {(job.state, job.reason, job.failures) for job in jobs} == {("waiting", "rate", 0)}
        assert all(waits(job) <= 5 for job in jobs)
        assert traces("b") == []
        away = [event for event in heard if event.name == "relay.limits_away"]
        assert 1 <= len(away) <= 5
        with pytest.raises(LimitsAway), dependency("mail"):
            pass

    def test_a_call_that_was_made_is_not_undone(
        self, settings: Any, own_redis: servers.Private, scratch: Path
    ) -> None:
        """Redis dies while the body runs: the job succeeds all the same."""
        settings.CELERY_GUARD = {**settings.CELERY_GUARD, "redis": own_redis.url}
        with dependency("desk"):
            own_redis.kill()


def test_the_settings_are_the_sites_again() -> None:
    """What these tests change is gone after each."""
    assert guard_settings().dependencies["provider"].burst == (5,)


def test_celery_hears_of_a_retry(settings: Any, scratch: Path) -> None:
    """A refusal is told as Celery's RETRY, never as a failure."""
    limit(settings, "provider", rate="1/h", burst=1)
    run(calls, "a")
    assert state_of(deliver(job_of(calls.delay("a")))) == "RETRY"
