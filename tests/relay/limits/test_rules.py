"""The settings of dependencies: what they mean, and every fault of theirs at once."""

import pytest

from celery_guard.conf import Dependency, read_settings
from celery_guard.errors import GuardError
from celery_guard.rate import parse_rate
from celery_guard.relay.limits.rules import Bucket, _rules, check_cost


def _read(**dependencies: object) -> tuple[dict[str, Dependency], list[str]]:
    settings, faults = read_settings({"dependencies": dependencies})
    return dict(settings.dependencies), faults


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("50/s", 0.02),
        ("0.5/s", 2.0),
        ("100/m", 0.6),
        ("1000/h", 3.6),
        ("100/15m", 9.0),
        ("2/1.5s", 0.75),
        (" 4 / s ", 0.25),
        (8, 0.125),
    ],
)
def test_a_rate_is_read_as_people_write_it(text: object, interval: float) -> None:
    """Whole or fractional, per second, minute, hour or several of them."""
    assert parse_rate(text).interval == pytest.approx(interval)


@pytest.mark.parametrize(
    "text", ["", "50", "50/d", "0/s", "-1/s", "1/0s", "x/s", None, True, float("inf"), "9e9/s"]
)
def test_what_is_no_rate_is_refused(text: object) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match="must"):
        parse_rate(text)


def test_intervals_are_rounded_up() -> None:
    """A third of a second in microseconds: the sum of many never comes out short."""
    found, faults = _read(a={"rate": ["3/s", "50/s"], "burst": 7})
    assert faults == []
    assert _rules(found["a"]).buckets == (
        Bucket(interval=333_334, burst=7),
        Bucket(interval=20_000, burst=7),
    )


def test_a_burst_is_half_a_seconds_worth() -> None:
    """At least two: those who come a little late to their places need room."""
    found, _ = _read(a={"rate": ["100/s", "1/h"]})
    assert [bucket.burst for bucket in _rules(found["a"]).buckets] == [50, 2]


def test_a_cost_that_nothing_could_pay_for_says_what_to_do() -> None:
    """The least burst decides; a smaller cost and a larger burst are the two ways out."""
    found, _ = _read(mail={"rate": ["10/s", "5000/h"], "burst": [10, 200]})
    check_cost(_rules(found["mail"]), 10)
    with pytest.raises(GuardError) as told:
        check_cost(_rules(found["mail"]), 15)
    assert "mail: cost 15 is more than its burst, 10" in str(told.value)
    assert "ask for at most 10 at once" in str(told.value)
    assert 'CELERY_GUARD["dependencies"]["mail"] a "burst" of at least 15' in str(told.value)


def test_every_fault_is_told_at_once() -> None:
    """Each with its full name, and the nearest known one."""
    _, faults = _read(
        **{
            "payments": {"rate": ["50/s", "soon"], "brust": 3, "concurrency": 0},
            "mail": {"rate": "5/s", "burst": [1, 2], "breaker": {"ratio": 2, "sampels": 1}},
            "a b": {},
            "x": 3,
        }
    )
    told = "\n".join(faults)
    for part in (
        "dependencies.payments.rate must be like",
        "did you mean 'burst'?",
        "dependencies.payments.concurrency must be a whole number above 0 or None, not 0",
        "dependencies.mail.burst must be one number, or one for each rate",
        "dependencies.mail.breaker.ratio must be above 0 and at most 1, not 2",
        "did you mean 'samples'?",
        "dependencies.a b: a name has",
        "dependencies.x must be a dict, not int",
    ):
        assert part in told
    assert len(faults) == 8


def test_a_breaker_can_be_left_out() -> None:
    """`False` is none; a dict changes some numbers."""
    found, faults = _read(a={"breaker": False}, b={"breaker": {"samples": 3}})
    assert faults == []
    assert _rules(found["a"]).breaker is None
    breaker = _rules(found["b"]).breaker
    assert breaker is not None
    assert (breaker.samples, breaker.ratio) == (3, 500_000)
