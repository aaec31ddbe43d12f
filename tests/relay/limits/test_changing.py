"""Limits that are changed while the site runs."""

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.errors import GuardError
from celery_guard.models import LimitChange
from celery_guard.relay.limits import changes
from celery_guard.relay.limits.changing import end_limits, set_limits
from celery_guard.relay.limits.rules import Bucket, check_cost, rules_of
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.relay.limits.stores import FORMS, Desk, store

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _provider(settings: Any) -> Iterator[None]:
    given = {"provider": {"rate": "50/s", "burst": 20, "concurrency": 10}}
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "dependencies": given}
    changes.forget()
    yield
    changes.forget()


def _named(settings: Any, **given: Any) -> str:
    """A dependency of its own for a test that asks a store, which outlives the test."""
    name = f"provider-{uuid.uuid4().hex}"
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "dependencies": {name: given}}
    return name


def changed(dependency: str = "provider", seconds: float = 600, **limits: Any) -> LimitChange:
    """Other limits, from now."""
    words = {"reason": "a test", "author": "me"}
    return set_limits("default", dependency=dependency, seconds=seconds, **words, **limits)


def test_all_faults_at_once() -> None:
    """No such dependency, no limit, no reason, no author, no end: all is told, nothing is written."""
    with pytest.raises(
        ValueError, match=r"reason.*author.*no dependency 'providr'.*name a rate.*30 days"
    ):
        set_limits("default", dependency="providr", reason=" ", author="", seconds=0)
    assert not LimitChange.objects.exists()


@pytest.mark.parametrize(
    "limits",
    [
        {"rate": "fast"},
        {"rate": "0/s"},
        {"burst": "2.5"},
        {"burst": "0"},
        {"burst": "1, 2"},
        {"rate": "1/s, 10/m, 100/h", "burst": "1, 2"},
        {"concurrency": 0},
        {"concurrency": -1},
    ],
    ids=str,
)
def test_what_is_no_limit_is_refused(limits: dict[str, Any]) -> None:
    """Nothing is guessed, and no worker ever reads what it can't understand."""
    with pytest.raises(ValueError, match=r"rate|burst|concurrency"):
        changed(**limits)
    assert not LimitChange.objects.exists()


def test_what_is_not_named_is_as_in_the_settings() -> None:
    """Each of the three alone, then all of it, then none."""
    assert rules_of("provider").buckets == (Bucket(interval=20_000, burst=20),)
    changed(rate="5/s")
    assert rules_of("provider").buckets == (Bucket(interval=200_000, burst=20),)
    assert rules_of("provider").concurrency == 10
    changed(concurrency=2)
    assert rules_of("provider").buckets == (Bucket(interval=20_000, burst=20),), "all of it anew"
    assert rules_of("provider").concurrency == 2
    changed(rate="1/s, 100/h", burst="2, 30")
    assert [bucket.burst for bucket in rules_of("provider").buckets] == [2, 30]
    assert LimitChange.objects.in_force().count() == 1
    assert end_limits("default", ["provider"], by="you") == ["provider"]
    assert end_limits("default", ["provider"], by="them") == []
    assert rules_of("provider").buckets == (Bucket(interval=20_000, burst=20),)
    assert {row.ended_by for row in LimitChange.objects.all()} == {"me", "you"}


def test_the_database_counts_the_time() -> None:
    """They last as long as was said, by one clock, and then count for nothing."""
    row = changed(rate="5/s", seconds=90)
    assert abs(row.expires_at - row.created_at - timedelta(seconds=90)) < timedelta(seconds=1)
    assert str(row) == "provider: rate 5/s"
    LimitChange.objects.update(expires_at=row.created_at)
    changes.forget()
    assert rules_of("provider").buckets == (Bucket(interval=20_000, burst=20),)


def test_a_cost_that_the_settings_allow_stays_allowed() -> None:
    """A smaller burst makes such a call wait; it must not end its job."""
    changed(burst="2")
    check_cost(rules_of("provider"), 20)
    with pytest.raises(GuardError, match="more than its burst, 20"):
        check_cost(rules_of("provider"), 21)


def test_settings_that_have_changed_since_stop_nobody(settings: Any) -> None:
    """Bursts that fit no more are left out; a dependency that is gone is passed over."""
    changed(rate="1/s, 10/m", burst="2, 3")
    LimitChange.objects.update(rate="")
    changes.forget()
    assert rules_of("provider").buckets == (Bucket(interval=20_000, burst=20),)
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "dependencies": {}}
    with pytest.raises(GuardError, match="no dependency"):
        rules_of("provider")


@pytest.mark.parametrize("form", FORMS)
def test_a_lower_rate_holds_at_once_and_a_higher_one_gives_no_second_burst(
    form: str, settings: Any
) -> None:
    """What was used stays used, in both stores; the permits that are out stay out."""
    name = _named(settings, rate="6/h", burst=20, concurrency=10)
    desk = Desk(store(form), rules_of(name))
    for n in range(10):
        assert desk.granted(f"j{n}")
    changed(name, rate="2/h", concurrency=5)
    desk.rules = rules_of(name)
    assert desk.read().permits == 10
    assert not desk.granted("more"), "five of ten would have to end first"
    for n in range(10):
        desk.finish(f"j{n}/1")
    # Ten of twenty tokens are left, and one more comes in half an hour.
    assert [desk.granted(f"k{n}") for n in range(5)] == [True] * 5
    for n in range(5):
        desk.finish(f"k{n}/1")
    assert [desk.granted(f"l{n}") for n in range(5)] == [True] * 5
    for n in range(5):
        desk.finish(f"l{n}/1")
    assert not desk.granted("empty")
    changed(name, rate="12/h")
    desk.rules = rules_of(name)
    assert not desk.granted("still empty")


@pytest.mark.bar
@pytest.mark.parametrize("form", FORMS)
def test_another_process_goes_by_it(form: str, settings: Any, processes: Processes) -> None:
    """One that is told to wait for an hour calls when the rate is raised, without a restart."""
    name = _named(settings, rate="1/h", burst=1)
    given = json.dumps({"dependencies": {name: {"rate": "1/h", "burst": 1}}})
    asker = processes.python(
        "-m",
        "tests.relay.limits.asker",
        form,
        env={"DJANGO_SETTINGS_MODULE": "tests.project.settings", "GUARD_ASKER": given},
    )
    wait_for(lambda: "refused" in asker.log, what="the hour's token is gone")
    changed(name, rate="100/s")
    assert asker.wait(timeout=60) == 0, asker.log
