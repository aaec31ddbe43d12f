"""Every setting: its name, default, check and meaning, as frozen dataclasses.

The string under a field is its meaning, and stands so in the reference of the settings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

from celery_guard.conf.field import setting as _setting
from celery_guard.conf.rollout import Rollout
from celery_guard.rate import Rate

Window = int | Literal["auto"] | None


FRESH_LEAST = 15.0
"""Seconds for which a measurement counts at least. Whoever takes it over from a relay that died with
it waits 5 s and a period, and it shares a thread with duties that wait for a broker."""

OnFull = Literal["refuse", "defer", "demote", "expire"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LaneAdmission:
    """When a lane takes no more work; a limit that is None is none."""

    depth: int | None = _setting(None, "some")
    """Jobs that may wait in the lane, those due in more than a minute left out."""
    age: float | None = _setting(None, "some seconds")
    """How long the oldest due job may have waited."""
    wait: float | None = _setting(None, "some seconds")
    """How long a new job may have to wait, as predicted from the rates."""
    on_full: OnFull = _setting("refuse", choices=("refuse", "defer", "demote", "expire"))
    """What becomes of a request past a limit: ``refuse`` it, ``defer`` its job by the Retry-After, ``demote`` it to the next lower lane, or let the job ``expire`` after ``ttl``."""
    ttl: float | None = _setting(None, "some seconds")
    """How long a job taken under ``expire`` may wait; None: the lane's objective."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """Which jobs of a lane are small, and what is kept free for them."""

    under: float = _setting(10.0, "positive")
    """A job is small whose task says so (`cost=`), or whose runs took on average, less than this; one of which nothing is known is long."""
    share: float = _setting(0.25, "share", unit="")
    """Part of the lane's live slots, rounded up, on which no long job is sent; one long job may always run."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A priority class: its own queue, worker pool and age objective."""

    name: str = ""
    queue: str = _setting("")
    """The broker queue; empty means the lane's name (``medium``: the app's default queue)."""
    objective: float = _setting(60.0, "positive")
    """No job should wait longer than this before it starts."""
    window: Window = _setting("auto", "window")
    """Unfinished jobs the broker may hold: a number, ``"auto"`` (by live slots) or ``None``."""
    min_workers: int = _setting(1, "not negative")
    """Fewest workers that the scaling advice names."""
    max_workers: int = _setting(20, "positive")
    """Most workers that the scaling advice names."""
    provider_rate: float = _setting(0.0, "not negative", unit="")
    """Jobs a second that the services behind the lane take; more workers would only wait. 0: no
    bound."""
    admission: LaneAdmission = dataclasses.field(default_factory=LaneAdmission)
    small: Small | None = None
    """`None`: nothing is kept for small jobs."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """How places are kept, and who gives way first."""

    hold: float = _setting(30.0, "positive")
    """How long a granted place is kept for its enqueue."""
    reserve: float = _setting(0.4, "share", unit="")
    """How much earlier the lowest lane gives way to pressure on those above it, and on the pool, than the highest: 0.4 is at 60 % of the limit."""
    pool: float | None = _setting(None, "some share")
    """Share of Django's own PostgreSQL connection pool in use at which even the highest lane refuses; None: not looked at."""
    retry_after: float = _setting(120.0, "positive")
    """Longest Retry-After that a refusal says."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """When a failing dependency is left alone."""

    ratio: float = _setting(0.5, "part", unit="")
    """It opens when this share of the calls in a window failed …"""
    samples: int = _setting(20, "positive")
    """… of at least this many."""
    window: float = _setting(30.0, "positive")
    """How long calls are counted together."""
    pause: float = _setting(10.0, "positive")
    """How long it stays open the first time; doubled with each failed probe, at most 5 min."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """A named downstream: how often, and by how many at once, it may be called."""

    name: str = ""
    rate: tuple[Rate, ...] = _setting((), "rate")
    """`"50/s"`, `"0.5/s"`, `"1000/h"`, or a list of such that all hold."""
    burst: tuple[int, ...] = _setting((), "burst")
    """Calls that may come at once after a rest, for each rate or one for all; else half a second's worth, at least 2."""
    concurrency: int | None = _setting(None, "some")
    """Calls that may be under way at the same time; `None`: any number."""
    errors: float = _setting(0.1, "share", unit="")
    """The rate is cut when more than this share of the calls of ten seconds failed, of at least 20; 0: only a throttle and the breaker cut it."""
    breaker: Breaker | None = dataclasses.field(default_factory=Breaker)
    """`False` for none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """What is captured, and how large it may be."""

    capture: Literal["guarded", "all"] = _setting("guarded", choices=("guarded", "all"))
    """``guarded``: guarded tasks; ``all``: every publish made inside a transaction too."""
    payload_limit: int = _setting(256 * 1024, "positive")
    """Largest encoded message body, in bytes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """How promises reach the broker."""

    host: bool = _setting(True)
    """Every Celery worker runs a relay as a child process."""
    wake: Literal["auto", "redis", "notify", "poll"] = _setting(
        "auto", choices=("auto", "redis", "notify", "poll")
    )
    """How a commit wakes the relay: Redis where there is one, else NOTIFY, else polling."""
    poll: float = _setting(0.25, "positive")
    """Longest time between looks for due jobs where there is a wake channel."""
    poll_blind: float = _setting(0.05, "positive")
    """The same where there is none."""
    linger: float = _setting(0.002, "not negative")
    """How long a process gathers commits into one wake; up to four times while they come densely."""
    batch: int = _setting(500, "positive")
    """Most jobs released in one statement."""
    lead_lease: float = _setting(3.0, "positive")
    """How long a silent leader keeps its lane."""
    budget: float = _setting(10.0, "positive")
    """Wall-clock limit for publishing one batch to one destination."""
    timeout: float = _setting(2.0, "positive")
    """Socket time-out towards broker and wake channel."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How an attempt is held and tried again."""

    lease: float = _setting(60.0, "positive")
    """How long a claim lasts without a heartbeat."""
    failures: int = _setting(10, "positive")
    """Transient failures a job may have before it is dead (``max_retries`` wins where set)."""
    lost: int = _setting(3, "positive")
    """Lost leases without progress before a job is dead as poison."""
    backoff_base: float = _setting(2.0, "positive")
    """Longest pause after the first failure; doubled with each further one."""
    backoff_cap: float = _setting(3600.0, "positive")
    """Full-jitter backoff: uniform in 0 … min(cap, base · 2**failures)."""
    retry_share: float = _setting(0.1, "share", unit="")
    """Retries that a dependency (else a task) may have for each start of the last minute; those past it wait four times as long. 0: any number."""
    retry_least: int = _setting(10, "positive")
    """Retries in a minute that are within the budget in any case."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """How lost messages and dead attempts are found."""

    every: float = _setting(5.0, "positive")
    """Time between two sweeps, and between two looks for dead attempts."""
    resend_grace: float = _setting(30.0, "positive")
    """Evidence of a lost message must stand this long before it is sent again; and so long an end may be untold."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How often the lanes are measured."""

    every: float = _setting(5.0, "positive")
    """Time between two measurements."""
    stale_after: int = _setting(3, "positive")
    """Missed measurements after which the snapshot no longer counts; never sooner than after 15 s."""

    @property
    def counts_for(self) -> float:
        """Seconds for which a measurement counts."""
        return max(FRESH_LEAST, self.every * (self.stale_after + 1))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long what has ended is kept."""

    succeeded: float = _setting(72 * 3600.0, "positive")
    """Payload, result and history of succeeded jobs."""
    failed: float = _setting(30 * 86400.0, "positive")
    """The same of all other ended jobs."""
    keys: float = _setting(90 * 86400.0, "positive")
    """The memory that a key was used."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many workers are advised."""

    concurrency: int = _setting(4, "positive")
    """Jobs that one worker runs at once."""
    headroom: float = _setting(0.2, "not negative", unit="")
    """Slots beyond those that the arrivals need, as a part of them."""
    tolerance: float = _setting(0.1, "not negative", unit="")
    """Changes up to this part of the last advice (half as much again downwards) are not made."""
    window: float = _setting(300.0, "not negative")
    """Fewer workers are advised only when none of the last so many seconds needed more."""
    burst: int = _setting(1, "not negative")
    """Workers added while the oldest job is over its objective."""
    service_rate: float = _setting(1.0, "positive", unit="")
    """Jobs that a busy slot ends a second, until that has been measured."""
    connections: int = _setting(0, "not negative")
    """Database connections that all workers together may hold; 0: no bound."""
    connections_per_slot: float = _setting(2.0, "positive", unit="")
    """Database connections that a slot may hold."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Who sees a job's status, and what they may do."""

    owner: str = _setting("")
    """Import path of a callable that takes request and job and says whether the job is the
    requester's; empty shows no job to anybody."""
    result: str = _setting("")
    """Import path of a callable that takes request and job and returns the address of a succeeded
    job's result, or ``None``."""
    cancel: bool = _setting(True)
    """Whether owners may cancel."""


LimitsOf = Callable[[str], Mapping[str, object] | None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tenants:
    """What one tenant may ask for; a limit that is None is none."""

    waiting: int | None = _setting(None, "some")
    """Jobs of a tenant that may wait, in all lanes together."""
    running: int | None = _setting(None, "some")
    """Jobs of a tenant that may run before its further requests are refused."""
    rate: Rate | None = _setting(None, "one rate")
    """Requests of a tenant that are let in: ``"10/s"``, ``"100/m"``, ``"0.5/s"``."""
    burst: int | None = _setting(None, "some")
    """Requests that may come at once after a rest; None: a tenth of the rate's count, at least 1."""
    weight: float = _setting(1.0, "positive", unit="")
    """A tenant's part of a lane, relative to the others that wait there."""
    in_flight: int | None = _setting(None, "some")
    """Jobs of a tenant that may be with the broker or running at once, in each lane."""
    limits: str | LimitsOf | None = _setting(None, "callable")
    """A callable (or its dotted path) that takes a tenant and returns the settings above that are different for it, or None."""


DEFAULT_LANES: Mapping[str, Mapping[str, object]] = {
    "high": {"objective": 10.0},
    "medium": {"objective": 60.0},
    "low": {"objective": 3600.0},
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole of ``CELERY_GUARD``."""

    using: str = _setting("default")
    """Database alias of the ledger for tasks that do not name one."""
    redis: str = _setting("", "redis url")
    """URL of the Redis used for waking and limits; empty: the broker, where that is Redis."""
    limits: Literal["auto", "redis", "database"] = _setting(
        "auto", choices=("auto", "redis", "database")
    )
    """Where the limits of dependencies are kept: `auto` is Redis where there is one, else the database."""
    prefix: str = _setting("")
    """Begins the names of the limits' keys in Redis, so that sites that share one do not share limits; empty: the name of the Celery app, in Django's tests after `test.`."""
    control_queue: str = _setting("guard")
    """Queue of the toolkit's own tasks (sweep, snapshot, purge)."""
    metrics_token: str = _setting("")
    """Bearer token of the metrics view; empty keeps the view closed."""
    outbox: Outbox = dataclasses.field(default_factory=Outbox)
    relay: Relay = dataclasses.field(default_factory=Relay)
    run: Run = dataclasses.field(default_factory=Run)
    sweep: Sweep = dataclasses.field(default_factory=Sweep)
    snapshot: Snapshot = dataclasses.field(default_factory=Snapshot)
    retention: Retention = dataclasses.field(default_factory=Retention)
    status: Status = dataclasses.field(default_factory=Status)
    admission: Admission = dataclasses.field(default_factory=Admission)
    tenants: Tenants = dataclasses.field(default_factory=Tenants)
    scale: Scale = dataclasses.field(default_factory=Scale)
    rollout: Rollout = dataclasses.field(default_factory=Rollout)
    lanes: Mapping[str, Lane] = dataclasses.field(default_factory=dict)
    dependencies: Mapping[str, Dependency] = dataclasses.field(default_factory=dict)

    def lane(self, name: str) -> Lane:
        """The lane called ``name``; a queue outside all lanes is a lane without window."""
        return self.lanes.get(name) or Lane(name=name, queue=name, window=None)

    def lane_of_queue(self, queue: str) -> Lane:
        """The lane that owns ``queue``."""
        for lane in self.lanes.values():
            if lane.queue == queue:
                return lane
        return self.lane(queue)
