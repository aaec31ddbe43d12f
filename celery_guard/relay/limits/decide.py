"""The rules of the limits, on numbers alone: a state and the store's clock in, the next state out.

The token bucket is the generic cell rate algorithm (ITU-T I.371, annex A, in its virtual
scheduling form): a theoretical arrival time that each token moves on by one interval, and that may
run ahead of the clock by ``burst`` intervals. There are two such times for every rate.
``tats`` schedules: a refusal moves it on too, and so has a place of its own in the future, exactly
one. ``gates`` sees only the calls that are made, and holds the promise (never more than rate × time
+ burst) whenever whoever was given a place comes late.

The rate backs off and recovers as TCP does (additive increase, multiplicative decrease; Chiu and
Jain, 1989); the breaker is the usual one of three states (Nygard, Release It!).
"""

from __future__ import annotations

from celery_guard.relay.limits.answers import (
    Ask,
    Breaking,
    Granted,
    Reading,
    Refused,
    Turn,
    Verdict,
)
from celery_guard.relay.limits.rules import MICRO, BreakerRule, Rules
from celery_guard.relay.limits.state import State

CUT_TENTHS, STEP, FLOOR, RAMP = 7, 50_000, 50_000, 100_000
"""Of the rate, in millionths but for the cut: × 0.7, + 5 %, at least 5 %, 10 % after an opening."""
GOOD_WINDOW = 10 * MICRO
SHORTEST_PAUSE, LONGEST_PAUSE = MICRO, 300 * MICRO
ERRORS_OF = 20
"""Fewest calls of a window whose failures slow the rate."""
PROBES = 3
"""Good probes that close a breaker."""
KEEP = 3600 * MICRO
"""How long a place is remembered after its time."""
AHEAD = 660 * MICRO
"""What is further ahead was written under a clock that has since stepped back: the longest pause
with its jitter, and the longest that a place is kept for, come to less."""


def take(
    s: State, rules: Rules, now: int, ask: Ask, place: int, held: int
) -> tuple[Granted | Refused, int]:
    """Decide, and return the asker's place from now on (0: none).

    :param place: the asker's place so far; ``held``: live permits of others.
    """
    s.lease = max(s.lease, ask.lease)
    _catch_up(s, rules, now)
    place = place if place - now <= max(AHEAD, ask.within) else 0
    reason, until, busy = _blocked(s, now, ask.permit)
    if place > now and place >= until:
        s.refused += 1
        return Refused(wait=place - now, reason=reason, kept=True), place
    costs = [ask.cost * interval for interval in s.intervals]
    gates = [max(gate, now) + cost for gate, cost in zip(s.gates, costs, strict=True)]
    tats = [max(tat, now) + cost for tat, cost in zip(s.tats, costs, strict=True)]
    at = max(_fit(s, rules, gates, ask.cost), until)
    if not place:
        at = max(at, _fit(s, rules, tats, ask.cost))
    free = not rules.concurrency or held < rules.concurrency
    if at <= now and not busy and free:
        s.gates, s.tats = gates, s.tats if place else tats
        s.used += ask.cost
        s.granted += 1
        if s.open_until:
            s.probe, s.probe_until = ask.permit, now + ask.lease
        return Granted(), 0
    s.refused += 1
    if at <= now and not busy:
        # The tokens are not taken, and a place stays good: only the permit is missing.
        return Refused(wait=_in_line(s, rules, now) - now, reason=reason, kept=True), place
    at = max(at, _fit(s, rules, tats, ask.cost))
    if busy or not rules.buckets:
        at = max(at, _in_line(s, rules, max(now, until)))
    if at - now > ask.within:
        return Refused(wait=at - now, reason=reason, kept=False), 0
    s.tats = tats
    return Refused(wait=at - now, reason=reason, kept=True), at


def _blocked(s: State, now: int, permit: str) -> tuple[str, int, bool]:
    if s.open_until > now:
        return "breaker", max(s.open_until, s.paused_until), False
    busy = s.open_until > 0 and s.probe_until > now and s.probe != permit
    return "breaker" if busy else "rate", s.paused_until, busy


def _fit(s: State, rules: Rules, times: list[int], cost: int) -> int:
    """When a call conforms whose theoretical arrival times would become ``times``."""
    # A burst that was made less than a cost at run time: such a call has the bucket to itself.
    tau = [
        max(bucket.burst, cost) * t for bucket, t in zip(rules.buckets, s.intervals, strict=True)
    ]
    return max((time - t for time, t in zip(times, tau, strict=True)), default=0)


def _in_line(s: State, rules: Rules, base: int) -> int:
    # Nobody knows when a permit comes back; by the mean time of a call they are spread out.
    s.line = max(s.line, base) + max(1000, s.hold // (rules.concurrency or 10))
    return s.line


def learn_hold(s: State, now: int, taken: int) -> None:
    """A permit comes back that was taken at ``taken``: learn how long calls last."""
    before = s.hold
    s.hold = (7 * before + max(0, now - taken)) // 8
    if s.line > now and s.hold < before:
        # Those who wait are as many as before, and their turns come faster.
        s.line = now + int((s.line - now) * (s.hold / before))


def _catch_up(s: State, rules: Rules, now: int) -> None:
    if not rules.buckets:
        # Nothing is left of a rate that is no more: no call could ever show that it recovers.
        s.factor = MICRO
    s.good_from, s.counted_from = min(s.good_from, now), min(s.counted_from, now)
    if not s.good_from:
        s.good_from = now
    elif now - s.good_from >= GOOD_WINDOW:
        busy = any(2 * s.used * t >= now - s.good_from for t in s.intervals)
        if busy and s.factor < MICRO and not (s.open_until or s.slowed or _errs(s, rules)):
            s.factor = min(MICRO, s.factor + STEP)
        _begin_window(s, now)
    _rescale(s, rules, now)
    _bound(s, rules, now + AHEAD)


def _begin_window(s: State, now: int) -> None:
    s.good_from, s.used, s.tried, s.erred, s.slowed = now, 0, 0, 0, 0


def _errs(s: State, rules: Rules) -> bool:
    return rules.errors > 0 and s.erred * MICRO > rules.errors * s.tried


def _bound(s: State, rules: Rules, latest: int) -> None:
    # No tokens come of it: a bucket that is cut to ``latest`` is still empty until then.
    s.paused_until, s.open_until = min(s.paused_until, latest), min(s.open_until, latest)
    s.line = min(s.line, latest)
    # No lease that was ever asked for lasts longer.
    s.probe_until = min(s.probe_until, latest - AHEAD + s.lease)
    for n, (bucket, t) in enumerate(zip(rules.buckets, s.intervals, strict=True)):
        s.gates[n] = min(s.gates[n], latest + bucket.burst * t)
        s.tats[n] = min(s.tats[n], latest + bucket.burst * t)


def _rescale(s: State, rules: Rules, now: int) -> None:
    """Bring the state to the rates in force: what was used stays used, none comes out of nothing."""
    bases = [bucket.interval for bucket in rules.buckets]
    wanted = [-(-base * MICRO // s.factor) for base in bases]
    if len(wanted) != len(s.intervals):
        s.gates = _gates_anew(s, rules, wanted, now)
        s.tats = list(s.gates)
    else:
        # Tokens are kept, not times: a slower rate must not make some out of nothing.
        for times in (s.gates, s.tats):
            for n, (old, new) in enumerate(zip(s.intervals, wanted, strict=True)):
                if times[n] > now and old != new:
                    times[n] = now - (-(times[n] - now) * new // old)
        if s.bases not in ([], bases):
            # The places that were given out are for other times: the line forms anew.
            s.tats = list(s.gates)
    s.bases, s.intervals = bases, wanted


def _gates_anew(s: State, rules: Rules, wanted: list[int], now: int) -> list[int]:
    if not s.intervals:
        # A new dependency begins rested; one that was called without a rate has saved up nothing.
        empty = [now + b.burst * t for b, t in zip(rules.buckets, wanted, strict=True)]
        return empty if s.granted else [0] * len(wanted)
    # Each new bucket begins with as much used as the one of the old ones with most.
    old = list(zip(s.gates, s.intervals, strict=True))
    return [max(now - (-max(0, gate - now) * new // t) for gate, t in old) for new in wanted]


def finish(
    s: State, rules: Rules, now: int, permit: str, verdict: str, pause: int, jitter: int
) -> None:
    """Learn how a call went.

    :param pause: how long a throttling dependency wants to be left alone; ``jitter`` of an
        opening, in thousandths.
    """
    _catch_up(s, rules, now)
    probing = s.open_until > 0 and s.probe == permit
    if probing:
        s.probe, s.probe_until = "", 0
    if verdict in (Verdict.FINE, Verdict.FAILED) and not s.open_until:
        _weigh(s, rules, now, verdict)
    if verdict == Verdict.THROTTLED:
        _throttle(s, rules, now, pause)
    elif rules.breaker is not None and verdict != Verdict.UNCLEAR:
        if probing:
            _probed(s, rules, rules.breaker, now, verdict, jitter)
        elif not s.open_until:
            _count(s, rules, rules.breaker, now, verdict, jitter)


def _weigh(s: State, rules: Rules, now: int, verdict: str) -> None:
    s.tried += 1
    s.erred += verdict == Verdict.FAILED
    if rules.buckets and not s.slowed and s.tried >= ERRORS_OF and _errs(s, rules):
        # Once a window: what fails until it is over was sent at the old rate.
        s.slowed = 1
        s.slowings += 1
        s.factor = max(FLOOR, s.factor * CUT_TENTHS // 10)
        _rescale(s, rules, now)


def _throttle(s: State, rules: Rules, now: int, pause: int) -> None:
    s.throttled += 1
    if rules.buckets and s.paused_until <= now:
        # Once a pause: all calls that were under way are told the same.
        s.factor = max(FLOOR, s.factor * CUT_TENTHS // 10)
    _begin_window(s, now)
    until = now + min(LONGEST_PAUSE, max(SHORTEST_PAUSE, pause))
    s.paused_until = max(s.paused_until, until)
    _rescale(s, rules, now)
    _rest_until(s, rules, s.paused_until)


def _rest_until(s: State, rules: Rules, until: int) -> None:
    # Empty at the end of the rest, so that it does not end in a burst.
    for n, (bucket, t) in enumerate(zip(rules.buckets, s.intervals, strict=True)):
        s.gates[n] = max(s.gates[n], until + bucket.burst * t)
        s.tats[n] = max(s.tats[n], until + bucket.burst * t)


def _count(s: State, rules: Rules, rule: BreakerRule, now: int, verdict: str, jitter: int) -> None:
    if now - s.counted_from > rule.window:
        s.counted_from, s.fine, s.failed = now, 0, 0
    if verdict == Verdict.FINE:
        s.fine += 1
        return
    s.failed += 1
    calls = s.fine + s.failed
    if calls >= rule.samples and s.failed * MICRO >= rule.ratio * calls:
        _open(s, rules, rule, now, jitter)


def _probed(s: State, rules: Rules, rule: BreakerRule, now: int, verdict: str, jitter: int) -> None:
    if verdict == Verdict.FAILED:
        _open(s, rules, rule, now, jitter)
        return
    s.probed += 1
    if s.probed >= PROBES:
        s.open_until = s.doublings = s.probed = 0
        s.counted_from, s.fine, s.failed = now, 0, 0


def _open(s: State, rules: Rules, rule: BreakerRule, now: int, jitter: int) -> None:
    pause = min(LONGEST_PAUSE, rule.pause * 2 ** min(s.doublings, 20))
    s.open_until = now + pause + pause * jitter // 10_000
    s.doublings += 1
    s.openings += 1
    s.probed, s.probe, s.probe_until = 0, "", 0
    s.fine = s.failed = 0
    if rules.buckets:
        s.factor = min(s.factor, RAMP)
    _begin_window(s, now)
    _rescale(s, rules, now)
    _rest_until(s, rules, s.open_until)


def read(s: State, rules: Rules, now: int, held: int) -> Reading:
    """The state in words and plain numbers."""
    _catch_up(s, rules, now)
    left = [
        bucket.burst - max(0, gate - now) / t
        for bucket, gate, t in zip(rules.buckets, s.gates, s.intervals, strict=True)
    ]
    broken = Breaking.OPEN if s.open_until > now else Breaking.HALF_OPEN
    return Reading(
        name=rules.name,
        tokens=max(0.0, min(left)) if left else None,
        permits=held,
        factor=s.factor / MICRO,
        paused=max(0, s.paused_until - now),
        breaker=broken if s.open_until else Breaking.CLOSED,
        granted=s.granted,
        refused=s.refused,
        throttled=s.throttled,
        slowings=s.slowings,
        openings=s.openings,
        closed=max(0, s.paused_until - now, s.open_until - now),
        turns=tuple(
            Turn(interval=t / MICRO, burst=bucket.burst, ahead=max(0, tat - now) / MICRO)
            for bucket, tat, t in zip(rules.buckets, s.tats, s.intervals, strict=True)
        ),
    )
