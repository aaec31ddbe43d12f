"""The rules on numbers alone, and the scripts beside them: the same questions, the same answers."""

import dataclasses
import heapq
import itertools
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_guard.relay.limits import decide
from celery_guard.relay.limits.answers import Ask, Granted, Verdict
from celery_guard.relay.limits.redis_form import _script, asked, encoded
from celery_guard.relay.limits.rules import MICRO, BreakerRule, Bucket, Rules
from celery_guard.relay.limits.state import State

START = 1_700_000_000 * MICRO
CLOCK = "redis.call('TIME')"

buckets = st.lists(
    st.builds(Bucket, interval=st.integers(1_000, 5 * MICRO), burst=st.integers(1, 20)),
    max_size=3,
)
all_rules = st.builds(
    Rules,
    name=st.just("d"),
    buckets=buckets.map(tuple),
    concurrency=st.integers(0, 3),
    breaker=st.none()
    | st.builds(
        BreakerRule,
        ratio=st.integers(1, MICRO),
        samples=st.integers(1, 6),
        window=st.integers(MICRO, 60 * MICRO),
        pause=st.integers(1_000, 20 * MICRO),
    ),
    errors=st.sampled_from([0, MICRO // 10, MICRO // 2]),
)
one_bucket = st.builds(
    Rules,
    name=st.just("d"),
    buckets=st.tuples(
        st.builds(Bucket, interval=st.integers(1_000, 5 * MICRO), burst=st.integers(1, 20))
    ),
    concurrency=st.just(0),
    breaker=st.none(),
)
who = st.integers(0, 5)
steps = st.lists(
    st.tuples(
        # Now and then the clock steps back.
        st.integers(0, 8 * MICRO) | st.integers(-4000 * MICRO, 0),
        st.one_of(
            st.tuples(st.just("take"), who, st.integers(1, 2), st.integers(0, 60 * MICRO)),
            st.tuples(
                st.just("finish"), who, st.sampled_from(list(Verdict)), st.integers(0, 9 * MICRO)
            ),
            st.tuples(st.just("renew"), who),
            # The limits are changed at run time.
            st.tuples(st.just("change"), st.integers(0, 1)),
        ),
    ),
    max_size=40,
)


class OnNumbers:
    """`decide` with its places and permits in dicts: the smallest store there can be."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self.state = rules, State()
        self.places: dict[str, int] = {}
        self.permits: dict[str, tuple[int, int]] = {}

    def take(self, now: int, ask: Ask) -> tuple[bool, int, str, bool]:
        """One question, answered as Redis answers it."""
        self._forget(now)
        place = self.places.get(ask.place, 0)
        held = len(self.permits.keys() - {ask.permit})
        answer, after = decide.take(self.state, self.rules, now, ask, place, held)
        self.places[ask.place] = after
        if isinstance(answer, Granted):
            if self.rules.concurrency:
                self.permits[ask.permit] = (now, now + ask.lease)
            return True, 0, "", False
        return False, answer.wait, answer.reason, answer.kept

    def finish(self, now: int, permit: str, verdict: Verdict, pause: int) -> None:
        """The end of a call."""
        if permit in self.permits:
            taken, _ = self.permits.pop(permit)
            decide.learn_hold(self.state, now, taken)
        decide.finish(self.state, self.rules, now, permit, verdict, pause, 500)

    def renew(self, now: int, permit: str, lease: int) -> None:
        """A heartbeat."""
        self._forget(now)
        self.state.lease = max(self.state.lease, lease)
        if permit in self.permits:
            self.permits[permit] = (self.permits[permit][0], now + lease)
        if self.state.probe == permit and self.state.probe_until > now:
            self.state.probe_until = now + lease

    def _forget(self, now: int) -> None:
        latest = now + self.state.lease
        self.permits = {
            n: (at, min(over, latest)) for n, (at, over) in self.permits.items() if over > now
        }
        self.places = {n: at for n, at in self.places.items() if at + decide.KEEP > now}


class OnRedis:
    """The scripts with the clock that the test gives them."""

    def __init__(self, client: redis.Redis, rules: Rules) -> None:
        self.client, self.rules = client, rules
        client.flushdb()

    def take(self, now: int, ask: Ask) -> tuple[bool, int, str, bool]:
        """One question."""
        granted, wait, reason, kept = self._run(now, "take", asked(ask))
        return bool(granted), wait, reason.decode(), bool(kept)

    def finish(self, now: int, permit: str, verdict: Verdict, pause: int) -> None:
        """The end of a call."""
        self._run(now, "finish", (permit, verdict, pause, 500, 0))

    def renew(self, now: int, permit: str, lease: int) -> None:
        """A heartbeat."""
        self._eval(now, _script("renew"), [permit, lease])

    def _run(self, now: int, name: str, given: tuple[str | int, ...]) -> Any:
        return self._eval(now, _script("rules", name), [encoded(self.rules), *given])

    def _eval(self, now: int, script: str, given: list[Any]) -> Any:
        assert script.count(CLOCK) == 1
        at = f"{{'{now // MICRO}', '{now % MICRO}'}}"
        keys = ["d.state", "d.places", "d.permits", "d.taken"]
        return self.client.eval(script.replace(CLOCK, at), len(keys), *keys, *given)


def _ask(name: int, cost: int, within: int) -> Ask:
    return Ask(place=f"j{name}", permit=f"j{name}/1", cost=cost, lease=5 * MICRO, within=within)


@pytest.mark.bar
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rules=st.tuples(all_rules, all_rules), story=steps)
def test_both_forms_decide_alike(
    redis_client: redis.Redis, rules: tuple[Rules, Rules], story: Any
) -> None:
    """Whatever happens in whatever order, the scripts answer what the numbers say, to the microsecond."""
    one, other = OnNumbers(rules[0]), OnRedis(redis_client, rules[0])
    now = START
    for pause, (what, name, *more) in story:
        now += pause
        if what == "take":
            cost, within = more
            assert one.take(now, _ask(name, cost, within)) == other.take(
                now, _ask(name, cost, within)
            )
        elif what == "finish":
            one.finish(now, f"j{name}/1", *more)
            other.finish(now, f"j{name}/1", *more)
        elif what == "change":
            one.rules = other.rules = rules[name]
        else:
            one.renew(now, f"j{name}/1", 3 * MICRO)
            other.renew(now, f"j{name}/1", 3 * MICRO)


@settings(max_examples=200, deadline=None)
@given(
    rules=all_rules.filter(lambda rules: bool(rules.buckets)),
    story=st.lists(st.tuples(st.integers(0, 3 * MICRO), who, st.integers(1, 2)), max_size=80),
    slack=st.integers(0, 20 * MICRO),
)
def test_no_window_holds_more_than_rate_and_burst(rules: Rules, story: Any, slack: int) -> None:
    """Also when those who were given a place come late, all at once or never."""
    one, now = OnNumbers(dataclasses.replace(rules, concurrency=0)), START
    most = min(bucket.burst for bucket in rules.buckets)
    calls: list[tuple[int, int]] = []
    for pause, name, wanted in story:
        cost = min(wanted, most)
        now += pause + (slack if pause % 7 == 0 else 0)
        if one.take(now, _ask(name, cost, 600 * MICRO))[0]:
            calls.append((now, cost))
    for bucket in rules.buckets:
        for first in range(len(calls)):
            for last in range(first, len(calls)):
                taken = sum(cost for _, cost in calls[first : last + 1])
                over = calls[last][0] - calls[first][0]
                assert taken * bucket.interval <= over + bucket.burst * bucket.interval


def test_two_thousand_jobs_cost_about_two_claims_each() -> None:
    """At 50/s, each comes back up to a fifth of a second after its time: no herd."""
    rules = Rules(
        name="d", buckets=(Bucket(interval=20_000, burst=20),), concurrency=0, breaker=None
    )
    one = OnNumbers(rules)
    due = [(START + n, n) for n in range(2000)]
    claims, last = 0, START
    while due:
        due.sort()
        now, name = due.pop(0)
        claims += 1
        granted, wait, _, kept = one.take(now, _ask(name, 1, 600 * MICRO))
        last = now
        if not granted:
            assert kept
            due.append((now + wait + (name * 7919) % 200_000, name))
    assert claims <= 2.1 * 2000
    assert last - START <= 1.2 * 2000 * 20_000


@pytest.mark.parametrize("length", [20_000, 200_000, 2 * MICRO])
def test_a_permit_is_not_idle_while_jobs_wait_for_it(length: int) -> None:
    """Eighty calls one after another take about as long as they last, and not far more asking."""
    rules = Rules(name="d", buckets=(), concurrency=1, breaker=None)
    one, ended, asks = OnNumbers(rules), START, 0
    line = [(START + n * 5_000, n, False) for n in range(80)]
    while line:
        now, n, is_over = heapq.heappop(line)
        if is_over:
            one.finish(now, f"j{n}/1", Verdict.FINE, 0)
            ended = now
            continue
        asks += 1
        granted, wait, _, _ = one.take(now, _ask(n, 1, 600 * MICRO))
        heapq.heappush(line, (now + (length if granted else wait), n, granted))
    assert ended - START < 1.6 * 80 * length
    assert asks < 80 * 25


def test_a_changed_rate_makes_no_tokens() -> None:
    """A bucket that was empty is empty at the new rate too."""
    slow = Rules(name="d", buckets=(Bucket(interval=MICRO, burst=10),), concurrency=0, breaker=None)
    one = OnNumbers(slow)
    assert [one.take(START, _ask(n, 1, 0))[0] for n in range(11)] == [True] * 10 + [False]
    for interval in (4 * MICRO, 100_000):
        one.rules = dataclasses.replace(slow, buckets=(Bucket(interval=interval, burst=10),))
        assert not one.take(START, _ask(99, 1, 0))[0]


@pytest.mark.bar
@settings(max_examples=200, deadline=None)
@given(
    rules=st.tuples(one_bucket, one_bucket),
    story=st.lists(st.tuples(st.integers(0, 2 * MICRO), who, st.integers(0, 1)), max_size=80),
)
def test_changing_to_and_fro_grants_no_burst_twice(
    rules: tuple[Rules, Rules], story: list[tuple[int, int, int]]
) -> None:
    """In every window at most the higher rate × time + the larger burst, whatever is set when."""
    one, now = OnNumbers(rules[0]), START
    calls = []
    for pause, name, which in story:
        now += pause
        one.rules = rules[which]
        if one.take(now, _ask(name, 1, 600 * MICRO))[0]:
            calls.append(now)
    interval = min(rule.buckets[0].interval for rule in rules)
    burst = max(rule.buckets[0].burst for rule in rules)
    for first, last in itertools.combinations(range(len(calls)), 2):
        assert (last - first + 1) * interval <= calls[last] - calls[first] + burst * interval


def test_a_lower_rate_leaves_no_hole_behind_the_old_line() -> None:
    """Those who were given places at 50/s come at a time when few may call; those few do call."""
    fast = Rules(name="d", buckets=(Bucket(interval=20_000, burst=2),), concurrency=0, breaker=None)
    one = OnNumbers(fast)
    due = []
    for n in range(100):
        granted, wait, _, _ = one.take(START, _ask(n, 1, 600 * MICRO))
        due += [] if granted else [(START + wait, n)]
    one.rules = dataclasses.replace(fast, buckets=(Bucket(interval=200_000, burst=2),))
    calls = []
    while due:
        now, n = heapq.heappop(due)
        granted, wait, _, _ = one.take(now, _ask(n, 1, 600 * MICRO))
        calls += [now] if granted else []
        if not granted:
            heapq.heappush(due, (now + wait, n))
    assert max(later - sooner for sooner, later in itertools.pairwise(calls)) <= 4 * 200_000


def test_a_rate_where_there_was_none_begins_empty() -> None:
    """Calls were made already; nothing was saved up."""
    rules = Rules(name="d", buckets=(), concurrency=0, breaker=None)
    one = OnNumbers(rules)
    assert one.take(START, _ask(0, 1, 0))[0]
    one.rules = dataclasses.replace(rules, buckets=(Bucket(interval=MICRO, burst=5),))
    assert one.take(START, _ask(1, 1, 0)) == (False, MICRO, "rate", False)


@pytest.mark.parametrize("more", [1, 2])
def test_another_number_of_rates_keeps_what_was_used(more: int) -> None:
    """An empty bucket stays empty, at the new rate, whether there are more of them or fewer."""
    two = tuple(Bucket(interval=MICRO, burst=10) for _ in range(2))
    one = OnNumbers(Rules(name="d", buckets=two[:more], concurrency=0, breaker=None))
    for n in range(10):
        assert one.take(START, _ask(n, 1, 0))[0]
    one.rules = dataclasses.replace(one.rules, buckets=two[: 3 - more])
    assert one.take(START, _ask(11, 1, 0)) == (False, MICRO, "rate", False)


def test_a_burst_below_a_cost_makes_it_wait_and_not_fail(redis_client: redis.Redis) -> None:
    """The settings allow the cost; under a smaller burst it has the bucket to itself."""
    rules = Rules(name="d", buckets=(Bucket(interval=MICRO, burst=2),), concurrency=0, breaker=None)
    for one in (OnNumbers(rules), OnRedis(redis_client, rules)):
        assert one.take(START, _ask(0, 1, 0))[0]
        assert one.take(START, _ask(1, 5, 0)) == (False, MICRO, "rate", False)
        assert one.take(START + MICRO, _ask(1, 5, 0))[0]
        assert one.take(START + MICRO, _ask(2, 1, 0)) == (False, 4 * MICRO, "rate", False)


def test_the_rate_recovers_in_good_windows() -> None:
    """+ 5 % of the configured rate for each ten seconds in which half of it was used."""
    rules = Rules(
        name="d", buckets=(Bucket(interval=20_000, burst=20),), concurrency=0, breaker=None
    )
    one, now = OnNumbers(rules), START
    one.finish(now, "x", Verdict.THROTTLED, MICRO)
    seen = []
    for n in range(3000):
        now += 25_000
        one.take(now, _ask(n, 1, 0))
        seen.append(one.state.factor)
    assert sorted(set(seen)) == sorted({min(MICRO, 700_000 + 50_000 * n) for n in range(7)})


def test_an_idle_dependency_does_not_recover_by_waiting() -> None:
    """Nothing is known of a rate that nobody tries."""
    rules = Rules(
        name="d", buckets=(Bucket(interval=20_000, burst=20),), concurrency=0, breaker=None
    )
    one = OnNumbers(rules)
    one.finish(START, "x", Verdict.THROTTLED, MICRO)
    for n in range(10):
        one.take(START + (n + 2) * 60 * MICRO, _ask(n, 1, 0))
    assert one.state.factor == 700_000


def test_the_rate_never_falls_below_a_twentieth() -> None:
    """However often it is told to slow down."""
    rules = Rules(
        name="d", buckets=(Bucket(interval=20_000, burst=20),), concurrency=0, breaker=None
    )
    one = OnNumbers(rules)
    for n in range(50):
        one.finish(START + n * 400 * MICRO, "x", Verdict.THROTTLED, MICRO)
    assert one.state.factor == 50_000


@pytest.mark.parametrize("form", ["numbers", "redis"])
def test_errors_cut_the_rate_once_a_window_and_stop_its_recovery(
    redis_client: redis.Redis, form: str
) -> None:
    """More than a tenth of twenty calls: × 0.7, once in ten seconds; nothing comes back meanwhile."""
    bucket = Bucket(interval=20_000, burst=2)
    rules = Rules(name="d", buckets=(bucket,), concurrency=0, breaker=None, errors=MICRO // 10)
    one = OnNumbers(rules) if form == "numbers" else OnRedis(redis_client, rules)

    def interval(now: int, place: int) -> int:
        # What is told to whoever comes third at once, less whoever came second.
        waits = [one.take(now, _ask(place + n, 1, 600 * MICRO))[1] for n in range(4)]
        return waits[3] - waits[2]

    def calls(now: int, failed: int, fine: int) -> None:
        for n in range(fine + failed):
            one.finish(now, "x", Verdict.FINE if n < fine else Verdict.FAILED, 0)

    calls(START, failed=2, fine=18)
    assert interval(START, 0) == 20_000, "just a tenth"
    calls(START, failed=1, fine=0)
    assert interval(START + MICRO, 10) == 28_572
    calls(START + 2 * MICRO, failed=50, fine=0)
    assert interval(START + 3 * MICRO, 20) == 28_572, "once a window"
    calls(START + 11 * MICRO, failed=19, fine=0)
    assert interval(START + 12 * MICRO, 30) == 28_572, "too few calls to tell"
    calls(START + 13 * MICRO, failed=1, fine=0)
    assert interval(START + 14 * MICRO, 40) == 40_817


@pytest.mark.parametrize(("errors", "factor"), [(MICRO // 10, 700_000), (0, 750_000)])
def test_a_window_with_errors_is_no_good_one(errors: int, factor: int) -> None:
    """Nothing of a cut rate comes back while more than a tenth fails, be it of few calls."""
    bucket = Bucket(interval=MICRO, burst=1)
    one = OnNumbers(Rules(name="d", buckets=(bucket,), concurrency=0, breaker=None, errors=errors))
    one.finish(START, "x", Verdict.THROTTLED, MICRO)
    for n in range(1, 9):
        now = START + n * 3 * MICRO // 2
        if one.take(now, _ask(n, 1, 0))[0]:
            one.finish(now, f"j{n}/1", Verdict.FAILED, 0)
    assert one.state.factor == factor


@pytest.mark.parametrize("form", ["numbers", "redis"])
def test_errors_that_may_cut_nothing(redis_client: redis.Redis, form: str) -> None:
    """0 in the settings: only throttles and the breaker cut; without a rate there is none to cut."""
    bucket = Bucket(interval=20_000, burst=2)
    plain = Rules(name="d", buckets=(bucket,), concurrency=0, breaker=None)
    for rules in (plain, dataclasses.replace(plain, buckets=(), errors=MICRO // 10)):
        one = OnNumbers(rules) if form == "numbers" else OnRedis(redis_client, rules)
        for _ in range(40):
            one.finish(START, "x", Verdict.FAILED, 0)
        one.rules = dataclasses.replace(plain)
        waits = [one.take(START, _ask(n, 1, 600 * MICRO))[1] for n in range(5)]
        assert waits[4] - waits[3] == 20_000


def test_a_clock_that_steps_back_makes_no_burst(redis_client: redis.Redis) -> None:
    """The store's clock goes back half a minute: waits grow, none is negative, nothing is given out."""
    rules = Rules(name="d", buckets=(Bucket(interval=MICRO, burst=3),), concurrency=0, breaker=None)
    for one in (OnNumbers(rules), OnRedis(redis_client, rules)):
        assert [one.take(START, _ask(n, 1, 0))[0] for n in range(4)] == [True] * 3 + [False]
        granted, wait, _, _ = one.take(START - 30 * MICRO, _ask(9, 1, 0))
        assert (granted, wait) == (False, 31 * MICRO)


FAR = 86_400 * MICRO


@pytest.mark.bar
@pytest.mark.parametrize("form", ["numbers", "redis"])
def test_a_clock_that_was_a_day_ahead_closes_nothing_for_long(
    redis_client: redis.Redis, form: str
) -> None:
    """Tokens, places, a pause and an opening made under it are over in about eleven minutes."""
    rules = Rules(
        name="d",
        buckets=(Bucket(interval=MICRO, burst=2),),
        concurrency=0,
        breaker=BreakerRule(ratio=MICRO // 2, samples=1, window=30 * MICRO, pause=10 * MICRO),
    )
    one = OnNumbers(rules) if form == "numbers" else OnRedis(redis_client, rules)
    for n in range(5):
        one.take(START + FAR, _ask(n, 1, 600 * MICRO))
    granted, wait, _, _ = one.take(START, _ask(4, 1, 600 * MICRO))
    assert not granted
    assert wait <= 661 * MICRO
    assert one.take(START + 662 * MICRO, _ask(4, 1, 600 * MICRO))[0], "its old place is forgotten"
    one.finish(START + FAR, "j1/1", Verdict.THROTTLED, 300 * MICRO)
    one.finish(START + FAR, "j4/1", Verdict.FAILED, 0)
    granted, wait, _, _ = one.take(START + 700 * MICRO, _ask(7, 1, 0))
    assert not granted
    assert wait <= 671 * MICRO, "a tenth of the rate after an opening"
    # Whoever asks then is the probe.
    assert one.take(START + 1372 * MICRO, _ask(7, 1, 0))[0]


@pytest.mark.parametrize("form", ["numbers", "redis"])
def test_who_died_while_the_clock_was_ahead_is_gone_with_a_lease(
    redis_client: redis.Redis, form: str
) -> None:
    """A permit, renewed or not, and a probe; counted from when the clock is right again."""
    breaker = BreakerRule(ratio=MICRO, samples=1, window=30 * MICRO, pause=MICRO)
    bounded = Rules(name="d", buckets=(), concurrency=2, breaker=None)
    one = OnNumbers(bounded) if form == "numbers" else OnRedis(redis_client, bounded)
    for n in range(2):
        assert one.take(START + FAR, _ask(n, 1, 0))[0]
    one.renew(START + FAR, "j1/1", 5 * MICRO)
    assert not one.take(START, _ask(2, 1, 0))[0], "they may well be alive"
    assert one.take(START + 6 * MICRO, _ask(3, 1, 0))[0]
    redis_client.flushdb()
    broken = Rules(name="d", buckets=(), concurrency=0, breaker=breaker)
    one = OnNumbers(broken) if form == "numbers" else OnRedis(redis_client, broken)
    one.finish(START + FAR, "x", Verdict.FAILED, 0)
    assert one.take(START + FAR + 2 * MICRO, _ask(4, 1, 0))[0], "the probe"
    one.take(START, _ask(5, 1, 0))
    # The opening itself is bounded apart.
    assert one.take(START + 662 * MICRO, _ask(5, 1, 0))[0]


def test_a_window_that_began_under_a_clock_ahead_begins_anew(redis_client: redis.Redis) -> None:
    """Failures from before the step do not count for a day, and the rate recovers at its pace."""
    rule = BreakerRule(ratio=MICRO, samples=2, window=30 * MICRO, pause=10 * MICRO)
    rules = Rules(name="d", buckets=(), concurrency=0, breaker=rule)
    for one in (OnNumbers(rules), OnRedis(redis_client, rules)):
        one.finish(START + FAR, "j0/1", Verdict.FAILED, 0)
        one.take(START, _ask(1, 1, 0))
        one.finish(START + 31 * MICRO, "j1/1", Verdict.FAILED, 0)
        assert one.take(START + 32 * MICRO, _ask(2, 1, 0))[0], "two failures in two windows"
