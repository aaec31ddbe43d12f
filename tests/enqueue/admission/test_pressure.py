"""A lane closes at its own limits, the lowest gives way first, and it does not flap."""

from typing import Any

import pytest

from celery_guard import admit
from celery_guard.conf import guard_settings
from celery_guard.enqueue.admission import measured, pressure
from celery_guard.enqueue.admission.limits import share_of
from celery_guard.enqueue.admission.models import Gate
from celery_guard.enqueue.admission.retry_after import retry_after
from celery_guard.events import Event, receive
from celery_guard.models import LaneSnapshot
from tests.enqueue.admission.asking import granted, refusal
from tests.enqueue.admission.conftest import Limit
from tests.enqueue.admission.lanes import measure, rated
from tests.enqueue.admission.tasks import idle, urgent, work

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db]

FRESH = {"every": 60}
"""Nothing measured in a test gets old in it."""


@pytest.fixture
def told() -> list[Event]:
    """The events of the test."""
    from celery_guard import events

    found: list[Event] = []
    receive(found.append)
    yield found
    events._receivers.remove(found.append)


def test_a_lane_never_measured_is_open(limit: Limit) -> None:
    """Before the first snapshot nothing is known, and nothing is refused for it."""
    limit(medium={"age": 10}, low={"age": 10})
    assert granted(work)
    assert granted(idle)


def test_the_age_of_the_oldest_job_closes_a_lane(limit: Limit) -> None:
    """At its limit, not below."""
    limit(medium={"age": 100}, snapshot=FRESH)
    measure("medium", age=50)
    assert granted(work)
    measure("medium", age=100.5)
    refused = refusal(work)
    assert (refused.reason, refused.limit) == ("age", "lanes.medium.admission.age")
    assert refused.status == 503


def test_the_predicted_wait_closes_a_lane(limit: Limit) -> None:
    """What waits ahead, by the rate at which jobs end."""
    limit(medium={"wait": 30}, snapshot=FRESH)
    measure("medium", ready=200, **rated(10))
    admission = admit(work)
    assert admission.predicted_wait == pytest.approx(20)
    assert admission.pressure == pytest.approx(20 / 30)
    measure("medium", ready=301, **rated(10))
    assert refusal(work).reason == "wait"


def test_free_slots_are_waited_for_by_nobody(limit: Limit) -> None:
    """A slow trickle in an idle pool is no queue."""
    limit(medium={"wait": 30}, snapshot=FRESH)
    measure("medium", ready=5, slots=8, running=1, **rated(0.02))
    assert admit(work).predicted_wait == 0


def test_a_rate_of_too_few_jobs_predicts_nothing(limit: Limit) -> None:
    """Below twenty completions there is no rate to go by."""
    limit(medium={"wait": 1}, snapshot=FRESH)
    measure("medium", ready=1000, completions_per_second=0.1, completions_total=19)
    assert admit(work).predicted_wait is None


def test_lower_lanes_give_way_first(limit: Limit) -> None:
    """Pressure on high refuses low at 60 % and medium at 80 %; high has all of its limit."""
    limit(high={"age": 100}, snapshot=FRESH)
    settings = guard_settings()
    shares = [share_of(settings, settings.lane(name)) for name in ("high", "medium", "low")]
    assert shares == [pytest.approx(share) for share in (1.0, 0.8, 0.6)]
    open_lanes = []
    for age in (50, 65, 85, 101):
        Gate.objects.all().delete()
        measure("high", age=age)
        open_lanes.append([granted(task) for task in (urgent, work, idle)])
    assert open_lanes == [
        [True, True, True],
        [True, True, False],
        [True, False, False],
        [False, False, False],
    ]
    assert refusal(idle).reason == "gives_way"


def test_pressure_on_a_lower_lane_does_not_reach_a_higher_one(limit: Limit) -> None:
    """A flood of imports closes the lane of the imports."""
    limit(high={"age": 100}, low={"age": 100}, snapshot=FRESH)
    measure("low", age=1000)
    assert (granted(urgent), granted(work), granted(idle)) == (True, True, False)


def test_a_closed_lane_opens_only_well_below_its_limit(limit: Limit) -> None:
    """Hysteresis: at 95 % it is open on the way up and closed on the way down."""
    limit(medium={"age": 100}, snapshot=FRESH)
    measure("medium", age=95)
    assert granted(work)
    measure("medium", age=101)
    assert not granted(work)
    measure("medium", age=95)
    assert not granted(work)
    measure("medium", age=50)
    # Two snapshots must have been below; their time is over when the gate's is.
    assert not granted(work)
    Gate.objects.update(closed_until="2020-01-01T00:00:00Z")
    measured.forget()
    assert granted(work)


def test_pressure_keeps_a_lane_closed_without_a_write_for_each_refusal(
    limit: Limit, django_assert_num_queries: Any
) -> None:
    """A storm of refusals is not a storm of writes to one row."""
    limit(medium={"age": 100}, snapshot=FRESH)
    measure("medium", age=101)
    assert not granted(work)
    lanes = measured.measured("default")
    before = Gate.objects.get().closed_until
    assert pressure.closing("default", guard_settings().lane("medium"), lanes) is not None
    assert Gate.objects.get().closed_until == before


@pytest.mark.parametrize("seconds", [1, 10_000])
def test_measurements_grow_stale(limit: Limit, told: list[Event], seconds: int) -> None:
    """Blind: high and medium stay open, low closes, and it is told each time."""
    limit(high={"age": 1}, medium={"age": 1}, low={"age": 1}, snapshot=FRESH)
    for lane in ("high", "medium", "low"):
        measure(lane, ago=seconds)
    blind = seconds == 10_000
    assert [granted(task) for task in (urgent, work, idle)] == [True, True, not blind]
    names = [event.name for event in told]
    assert names.count("enqueue.admission_blind") == (3 if blind else 0)
    if blind:
        assert refusal(idle).reason == "blind"


def test_a_short_period_closes_no_lane_that_is_measured_again_and_again(limit: Limit) -> None:
    """A measurement that comes a few seconds late, as on a busy site, is no blindness."""
    limit(low={"age": 1}, snapshot={"every": 0.5})
    measure("low", ago=10)
    assert granted(idle)
    measure("low", ago=20)
    measured.forget()
    assert not granted(idle)


def test_stale_pressure_counts_for_nothing(limit: Limit) -> None:
    """What was true an hour ago closes no lane that stays open when blind."""
    limit(medium={"age": 100}, snapshot={"every": 1})
    measure("medium", age=1000, ago=3600)
    assert granted(work)


def test_the_pool_in_use_is_pressure(limit: Limit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Django's own pool: the highest lane has all of the limit, the lowest 60 % of it."""
    limit(admission={"pool": 1.0})
    stats = {"pool_size": 10, "pool_available": 3, "pool_max": 10}
    monkeypatch.setattr(pressure, "pool_stats", lambda using: stats)
    assert (granted(urgent), granted(idle)) == (True, False)
    assert refusal(idle).limit == "admission.pool"


def test_a_site_without_a_pool_has_no_pool_pressure(limit: Limit) -> None:
    """The limit is set, but Django pools nothing: there is nothing to see."""
    limit(admission={"pool": 0.1})
    assert granted(idle)


def test_the_snapshot_has_what_is_read_of_it() -> None:
    """The table is reached by its name: its columns are those that admission reads."""
    columns = {field.name for field in LaneSnapshot._meta.concrete_fields}
    read = "lane taken_at ready running slots oldest_due_at"
    rates = "arrivals_per_second completions_per_second completions_total"
    assert columns >= {*read.split(), *rates.split(), "service_rate", "busy_seconds"}


@pytest.mark.bar
def test_a_quiet_time_is_no_slow_lane(limit: Limit) -> None:
    """Nothing ended lately, since nothing came: what the slots could do counts until it is seen."""
    limit(medium={"wait": 60, "depth": 100})
    quiet = rated(0.0, ready=90, slots=10, running=10, service_rate=2.0)
    measure("medium", age=1, **quiet)
    assert granted(work), "80 jobs at 20 a second"
    found = measured.measured("default")["medium"]
    assert found.completions == pytest.approx(20, rel=0.1)
    later = retry_after(guard_settings().lane("medium"), found, "depth")
    assert later <= 2


def test_slots_that_end_nothing_are_slow(limit: Limit) -> None:
    """A provider is away: 10 slots have been busy for a minute each and ended nothing."""
    limit(medium={"wait": 60})
    measure("medium", age=1, **rated(0.0, ready=90, slots=10, service_rate=2.0, busy_seconds=600.0))
    assert measured.measured("default")["medium"].completions < 0.02
    assert refusal(work).reason == "wait"


def test_a_long_backlog_goes_by_what_has_ended(limit: Limit) -> None:
    """The slots may serve other lanes too: after minutes of waiting the lane's own rate is known."""
    limit(medium={"wait": 60})
    measure("medium", age=300, **rated(1.0, ready=90, slots=10, running=1, service_rate=2.0))
    assert measured.measured("default")["medium"].completions == 1.0
    assert refusal(work).reason == "wait"
