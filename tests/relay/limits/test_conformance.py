"""The promise of the limits, the same in Redis and in the database."""

import dataclasses
import itertools
import json
import math
import time

import pytest
from django.db.models import F

from celery_guard.models import Limit, LimitHold
from celery_guard.relay.limits.answers import Verdict
from celery_guard.relay.limits.rules import MICRO
from celery_guard.relay.limits.store import Limits
from tests.kit.processes import Processes
from tests.relay.limits.stores import FORMS, Desk, rules, store

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]


def _most_over(calls: list[tuple[float, float]], rate: float, burst: int) -> float:
    """By how much the fullest window is over rate × time + burst; not above 0 where it never is."""
    calls = sorted(calls)
    over = -math.inf
    for first in range(len(calls)):
        # Whoever asked early may have got its token late: the window ends with the last of them.
        end = calls[first][1]
        for last in range(first, len(calls)):
            end = max(end, calls[last][1])
            over = max(over, (last - first + 1) - (rate * (end - calls[first][0]) + burst))
    return over


@pytest.mark.bar
@pytest.mark.parametrize("form", FORMS)
def test_eight_processes_never_pass_the_rate(form: str, processes: Processes) -> None:
    """8 processes × 100 takes: in no window more than rate × time + burst, and about two asks each."""
    given = json.dumps({"rate": "40/s", "burst": 20})
    argv = ("-m", "tests.relay.limits.taker", form, f"shared-{form}", given, "100")
    takers = [
        processes.python(*argv, f"p{n}", env={"DJANGO_SETTINGS_MODULE": "tests.project.settings"})
        for n in range(8)
    ]
    assert [taker.wait(timeout=100) for taker in takers] == [0] * 8, takers[0].log
    told = [json.loads(taker.log.splitlines()[-1]) for taker in takers]
    calls = [tuple(call) for one in told for call in one["calls"]]
    assert len(calls) == 800
    assert _most_over(calls, 40, 20) <= 0
    refusals = sum(one["refusals"] for one in told)
    assert 0 < refusals <= 1.5 * 800, "none: the limit was never reached, and nothing is shown"


def test_a_fractional_rate(limits: Limits) -> None:
    """Two tokens in a minute and a half: the third asker is told 45 seconds, not 30 or 60."""
    desk = Desk(limits, rules(rate="2/1.5m", burst=2))
    assert [desk.granted(f"j{n}") for n in range(2)] == [True, True]
    assert 40 * MICRO < desk.refused("j2").wait <= 45 * MICRO


def test_a_refusal_keeps_a_place_of_its_own(limits: Limits) -> None:
    """Everybody who is refused is told another time, one interval after the one before."""
    desk = Desk(limits, rules(rate="6/m", burst=1))
    assert desk.granted("j")
    waits = [desk.refused(f"j{n}").wait for n in range(20)]
    steps = [later - sooner for sooner, later in itertools.pairwise(waits)]
    # The clock goes on between two questions, so each wait is a little less.
    assert all(8 * MICRO < step <= 10 * MICRO for step in steps)


def test_whoever_comes_at_the_told_time_may_call(limits: Limits) -> None:
    """Sleeping exactly the told wait succeeds at once, and nobody overtakes."""
    desk = Desk(limits, rules(rate="30/m", burst=1))
    assert desk.granted("first")
    answer = desk.refused("mine")
    assert answer.kept
    time.sleep(answer.wait / MICRO)
    # The place is somebody's: a newcomer has to wait, whatever the clock says.
    assert not desk.granted("newcomer")
    assert desk.granted("mine")
    assert not desk.granted("mine", "mine/2"), "a place is good for one call"


def test_asking_too_early_costs_nothing(limits: Limits) -> None:
    """The place stays as it is, and no second one is taken."""
    desk = Desk(limits, rules(rate="1/m", burst=1))
    assert desk.granted("first")
    first = desk.refused("mine").wait
    waits = [desk.refused("mine").wait for _ in range(20)]
    assert all(wait < first for wait in waits)
    assert desk.refused("next").wait < first + 61 * MICRO


def test_late_comers_do_not_make_a_burst(limits: Limits) -> None:
    """Places that were not used in time do not add up: all at once is still the burst, no more."""
    desk = Desk(limits, rules(rate="100/s", burst=5))
    names = [f"j{n}" for n in range(40)]
    for name in names:
        desk.take(name)
    time.sleep(0.5)
    start = time.monotonic()
    came = sum(desk.granted(name, f"{name}/late") for name in names)
    assert came <= 5 + 100 * (time.monotonic() - start)


def test_a_cost_is_taken_whole(limits: Limits) -> None:
    """Four of five tokens are gone at once; two more are there in a minute, not before."""
    desk = Desk(limits, rules(rate="1/m", burst=5))
    assert desk.granted("a", cost=4)
    assert 50 * MICRO < desk.refused("b", cost=2).wait <= 60 * MICRO


def test_several_rates_hold_in_one_take(limits: Limits) -> None:
    """The slower one decides, and the faster one is not charged for what the slower refuses."""
    desk = Desk(limits, rules(rate=["50/s", "3/h"], burst=[10, 3]))
    assert [desk.granted(f"j{n}") for n in range(4)] == [True, True, True, False]
    assert not desk.refused("far", within=1).kept
    wait = desk.refused("far", within=10_000).wait
    assert 1100 * MICRO < wait < 1200 * MICRO
    assert desk.read().granted == 3


def test_no_place_is_kept_beyond_the_horizon(limits: Limits) -> None:
    """Whoever would not come back for it does not push the others away."""
    desk = Desk(limits, rules(rate="1/m", burst=1))
    assert desk.granted("a")
    answers = [desk.refused(f"j{n}", within=5) for n in range(5)]
    assert not any(answer.kept for answer in answers)
    assert desk.refused("mine").wait <= 60 * MICRO


def test_a_bound_on_what_is_under_way(limits: Limits) -> None:
    """No more permits than allowed; one that comes back can be had; a refusal takes no tokens."""
    desk = Desk(limits, rules(rate="1/h", burst=3, concurrency=2))
    assert desk.granted("a")
    assert desk.granted("b")
    assert desk.refused("c").reason == "rate"
    assert desk.read().permits == 2
    desk.finish("a/1")
    assert desk.granted("c"), "the third token is still there"
    desk.finish("a/1")
    assert desk.read().permits == 2, "giving back twice gives back once"


def test_a_permit_ends_with_its_lease(limits: Limits) -> None:
    """Whoever was killed holds nothing for longer than that; whoever renews keeps it."""
    desk = Desk(limits, rules(concurrency=2))
    assert desk.granted("alive", lease=0.1)
    desk.limits.renew(desk.rules, ["alive/1"], 60)
    assert desk.granted("dead", lease=0.1)
    time.sleep(0.2)
    assert desk.read().permits == 1
    assert desk.granted("heir")
    assert not desk.granted("another")
    desk.finish("dead/1")
    assert desk.read().permits == 2, "a late return takes nothing from the heir"


def test_a_permit_of_a_clock_ahead_ends_with_a_lease() -> None:
    """In the database too: whoever died holds nothing until the clock gets there again."""
    desk = Desk(store("database"), rules(concurrency=1))
    assert desk.granted("dead", lease=0.2)
    day = 86_400 * MICRO
    LimitHold.objects.filter(name=desk.rules.name).update(over=F("over") + day, at=F("at") + day)
    row = Limit.objects.get(pk=desk.rules.name)
    row.state = row.state.replace('"seen": ', '"seen": 9')
    row.save()
    assert not desk.granted("heir")
    time.sleep(0.3)
    assert desk.granted("heir")


def test_a_late_renewal_brings_no_permit_back(limits: Limits) -> None:
    """A holder that slept past its lease finds its permit given to another."""
    desk = Desk(limits, rules(concurrency=1))
    assert desk.granted("sleeper", lease=0.1)
    time.sleep(0.2)
    desk.limits.renew(desk.rules, ["sleeper/1"], 60)
    assert desk.read().permits == 0
    assert desk.granted("heir")
    desk.limits.renew(desk.rules, ["sleeper/1"], 60)
    assert desk.read().permits == 1


def test_a_throttle_pauses_everybody(limits: Limits) -> None:
    """All takers wait as long as it says; a shorter later value does not shorten it."""
    desk, other = Desk(limits, rules(rate="60/m", burst=10)), Desk(limits, rules(rate="50/s"))
    assert desk.granted("a")
    desk.finish("a/1", Verdict.THROTTLED, pause=30)
    desk.finish("b/1", Verdict.THROTTLED, pause=2)
    waits = [desk.refused(f"j{n}").wait for n in range(10)]
    assert min(waits) >= 25 * MICRO
    steps = [later - sooner for sooner, later in itertools.pairwise(waits)]
    assert min(steps) > 0, "and not all to the same moment"
    assert other.granted("a")


def test_the_rate_backs_off_once_a_pause(limits: Limits) -> None:
    """× 0.7 for the first of many calls that are told to wait together."""
    desk = Desk(limits, rules(rate="50/s"))
    for n in range(5):
        desk.finish(f"j{n}/1", Verdict.THROTTLED, pause=5)
    assert desk.read().factor == 0.7
    assert desk.read().throttled == 5


@pytest.mark.parametrize("why", ["throttled", "opened", "removed"])
def test_without_a_rate_nothing_is_cut(limits: Limits, why: str) -> None:
    """A rate that is set later counts in full; nobody could have shown before that it recovers."""
    full = rules(rate="50/s", breaker={"samples": 3})
    none = dataclasses.replace(full, buckets=())
    desk = Desk(limits, full if why == "removed" else none)
    if why == "opened":
        _break(desk, 3)
        assert desk.read().breaker == "open"
    else:
        desk.finish("j/1", Verdict.THROTTLED, pause=5)
    desk.rules = none
    desk.finish("k/1", Verdict.UNCLEAR)
    assert desk.read().factor == 1
    desk.rules = full
    assert desk.read().factor == 1
    assert desk.read().turns[0].interval == 0.02


def test_the_rate_backs_off_when_too_many_calls_fail(limits: Limits) -> None:
    """× 0.7 once, long before the breaker opens, and it is counted; a tenth is not too many."""
    desk = Desk(limits, rules(rate="50/s"))
    for n in range(18):
        desk.finish(f"good{n}/1", Verdict.FINE)
    _break(desk, 2)
    assert desk.read().factor == 1
    _break(desk, 3)
    assert (desk.read().factor, desk.read().slowings) == (0.7, 1)
    assert desk.read().breaker == "closed"
    alone = Desk(limits, rules(rate="50/s", errors=0, breaker=False))
    _break(alone, 40)
    assert (alone.read().factor, alone.read().slowings) == (1, 0)


def _break(desk: Desk, calls: int = 20) -> None:
    for n in range(calls):
        desk.finish(f"bad{n}/1", Verdict.FAILED)


def test_the_breaker_opens_and_parks(limits: Limits) -> None:
    """Half of twenty calls failed: nobody calls for a while, and the reason says so."""
    desk = Desk(limits, rules(rate="50/s", breaker={"samples": 20, "pause": 10}))
    for n in range(10):
        desk.finish(f"good{n}/1", Verdict.FINE)
    _break(desk, 9)
    assert desk.granted("still")
    _break(desk, 1)
    answer = desk.refused("parked")
    assert answer.reason == "breaker"
    assert answer.wait >= 6 * MICRO
    assert desk.read().breaker == "open"


def test_what_is_nobodys_fault_opens_nothing(limits: Limits) -> None:
    """Unclear ends and throttles are no failures."""
    desk = Desk(limits, rules(breaker={"samples": 5}))
    for n in range(30):
        desk.finish(f"j{n}/1", Verdict.UNCLEAR)
    assert desk.read().breaker == "closed"


@pytest.mark.bar
def test_half_open_lets_one_probe_through(limits: Limits) -> None:
    """One at a time; a probe that died is followed by another; three good ones close it."""
    desk = Desk(limits, rules(breaker={"samples": 5, "pause": 0.2}))
    _break(desk, 5)
    time.sleep(0.3)
    assert desk.granted("probe", lease=60)
    assert [desk.granted(f"j{n}") for n in range(10)] == [False] * 10
    assert desk.read().breaker == "half_open"
    desk.limits.renew(desk.rules, ["probe/1"], 0.1)
    time.sleep(0.2)
    assert desk.granted("second"), "the first probe's lease is over"
    desk.finish("probe/1", Verdict.FINE)
    assert not desk.granted("third"), "the second is still out"
    desk.finish("second/1", Verdict.FINE)
    for name in ("fourth", "fifth"):
        assert desk.granted(name, f"{name}/p")
        desk.finish(f"{name}/p", Verdict.FINE)
    assert desk.read().breaker == "closed"
    assert [desk.granted(f"k{n}") for n in range(3)] == [True] * 3


def test_a_failed_probe_opens_for_longer(limits: Limits) -> None:
    """Twice as long each time."""
    desk = Desk(limits, rules(breaker={"samples": 5, "pause": 0.2}))
    _break(desk, 5)
    time.sleep(0.3)
    assert desk.granted("probe")
    desk.finish("probe/1", Verdict.FAILED)
    # Twice 0.2 s at least, then the spreading of those who wait.
    assert desk.refused("b").wait > 0.25 * MICRO
    assert desk.read().openings == 2
