"""The settings of admission: every fault at once, and what they come to."""

from collections.abc import Mapping

import pytest

from celery_guard import events
from celery_guard.conf import guard_settings, read_settings
from celery_guard.enqueue.admission.limits import (
    above,
    allowance_of,
    below,
    caps_of,
    is_limited,
    is_lowest,
)
from celery_guard.events import Event
from celery_guard.rate import Rate
from tests.enqueue.admission.conftest import Limit


@pytest.mark.bar
def test_all_faults_are_told_at_once() -> None:
    """Misspelt names with the name that was meant, wrong values with what would be right."""
    _, faults = read_settings(
        {
            "lanes": {"low": {"admission": {"dept": 5, "age": -1, "on_full": "refus"}}},
            "tenants": {"waiting": 0, "rate": "fast", "burst": 1.5, "limits": 7},
            "admission": {"reserve": 1, "pool": 2, "hold": 0, "retry_after": "long"},
        }
    )
    text = "\n".join(faults)
    assert len(faults) == 11
    for part in (
        "lanes.low.admission.dept is not a setting; did you mean 'depth'?",
        "lanes.low.admission.age must be above 0",
        "lanes.low.admission.on_full must be one of refuse, defer, demote, expire (did you mean",
        "tenants.waiting must be a whole number above 0 or None, not 0",
        'tenants.rate must be like "50/s"',
        "tenants.burst must be a whole number",
        "tenants.limits must be a callable",
        "admission.reserve must be from 0 to below 1",
        "admission.pool must be above 0 and at most 1",
        "admission.hold must be above 0",
        "admission.retry_after must be a number",
    ):
        assert part in text


def test_a_lane_that_is_no_dict_is_told() -> None:
    """The admission of a lane is a dict of limits."""
    _, faults = read_settings({"lanes": {"low": {"admission": 5}}})
    assert faults == ["lanes.low.admission must be a dict, not int"]


def test_limits_are_read() -> None:
    """Rates as people write them, numbers as they are."""
    found, faults = read_settings(
        {"lanes": {"low": {"admission": {"depth": 5}}}, "tenants": {"rate": "100/m"}}
    )
    assert faults == []
    assert found.lanes["low"].admission.depth == 5
    assert found.tenants.rate == Rate(count=100, per=60)


def test_no_limit_is_none() -> None:
    """The defaults limit nothing."""
    settings = guard_settings()
    assert not any(is_limited(settings, lane, "tenant") for lane in settings.lanes.values())


def test_lanes_stand_in_the_order_of_their_objectives(limit: Limit) -> None:
    """A lane of the site's own has its place among the three by its objective."""
    settings, faults = read_settings({"lanes": {"bulk": {"objective": 86400}}})
    assert faults == []
    lanes = settings.lanes
    assert below(settings, lanes["low"]) is lanes["bulk"]
    assert below(settings, lanes["high"]) is lanes["medium"]
    assert below(settings, lanes["bulk"]) is None
    assert [lane.name for lane in above(settings, lanes["low"])] == ["high", "medium"]
    assert [is_lowest(settings, lane) for lane in lanes.values()] == [False, False, False, True]


def test_a_limit_above_limits_those_below(limit: Limit) -> None:
    """A lane without limits of its own still gives way."""
    limit(high={"age": 10})
    settings = guard_settings()
    assert is_limited(settings, settings.lane("low"), "")
    limit(high={}, low={"age": 10})
    assert not is_limited(guard_settings(), guard_settings().lane("high"), "")


def test_a_rate_has_a_burst_of_a_tenth(limit: Limit) -> None:
    """100 a minute may come ten at once; one a second comes one by one."""
    for rate, burst in (("100/m", 10), ("1/s", 1)):
        limit(tenants={"rate": rate})
        (cap,) = caps_of(guard_settings().lane("low"), "a")
        assert cap.slack == pytest.approx(cap.step * (burst - 1))


def no_plans(tenant: str) -> None:
    """A callable of the site's own that fails."""
    raise RuntimeError("no plan table")


def misspelt(tenant: str) -> Mapping[str, object]:
    """A callable of the site's own that means another name."""
    return {"waitng": 5}


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (no_plans, "RuntimeError: no plan table"),
        (misspelt, "did you mean 'waiting'?"),
        ("no.such.path", "No module named 'no'"),
    ],
    ids=["raises", "misspells", "is not there"],
)
def test_where_the_callable_fails_the_settings_hold(
    limits: object, said: str, limit: Limit
) -> None:
    """A mistake in the site's own code refuses nobody, and is told with its tenant."""
    limit(tenants={"waiting": 7, "limits": limits})
    heard: list[Event] = []
    events.receive(heard.append)
    try:
        assert allowance_of("acme").waiting == 7
        (cap,) = caps_of(guard_settings().lane("low"), "acme")
    finally:
        events._receivers.remove(heard.append)
    assert cap.most == 7
    assert {event.name for event in heard} == {"enqueue.tenant_unknown"}
    assert heard[0].facts["tenant"] == "acme"
    assert said in str(heard[0].facts["error"])
