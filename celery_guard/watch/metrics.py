"""The metrics by name, as data: what they mean, and where their numbers come from.

Every process that is scraped tells the same, so queries over several of them fold with
``max by (queue)``, never with ``sum``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from celery_guard.watch.lanes import LaneView

PREFIX = "celery_guard_"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric family: ``labels`` come after the prefix; seconds and counts, nothing else."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter", "histogram"] = "gauge"

    @property
    def full_name(self) -> str:
        """The name as it is scraped, but for a counter's ``_total``."""
        return PREFIX + self.name


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LaneMetric(Metric):
    """A metric with one value a lane; None leaves the lane out."""

    value: Callable[[LaneView], float | None]
    labels: tuple[str, ...] = ("queue",)


QUEUE_DEPTH = Metric(
    name="queue_depth",
    help="Jobs in the queue's lane by state, at least; no job is counted twice.",
    labels=("queue", "state"),
)
DEPTH_STATES = ("ready", "scheduled", "running", "retrying")
QUEUE_OBJECTIVE = Metric(
    name="queue_objective_seconds",
    help="No job should wait longer than this before it starts.",
    labels=("queue",),
)
OUTBOX_PENDING = Metric(
    name="outbox_pending_rows",
    help="Jobs that the relay could send now and has not sent, at least.",
)
OUTBOX_OLDEST_AGE = Metric(
    name="outbox_oldest_age_seconds",
    help="How long the relay has sent nothing while there was something it could send.",
)
SNAPSHOT_TIMESTAMP = Metric(
    name="snapshot_timestamp_seconds",
    help="When the lane that waits longest for it was last measured, Unix time.",
)
COLLECTOR_UP = Metric(
    name="collector_up", help="1 when the snapshot could be read for this scrape, else 0."
)
COLLECT_DURATION = Metric(
    name="collect_duration_seconds", help="How long reading the snapshot for this scrape took."
)

SCALE_LIMITED = Metric(
    name="scale_limited",
    help="1 at the bound that keeps the desired workers below what the load asks for, else 0.",
    labels=("queue", "by"),
)

LANE_METRICS = (
    LaneMetric(
        name="queue_paused",
        help="1 while a switch holds the whole lane, else 0.",
        value=lambda lane: lane.paused,
    ),
    LaneMetric(
        name="queue_oldest_age_seconds",
        help="How long the oldest due job has waited for its first start; 0 when none waits.",
        value=lambda lane: lane.age,
    ),
    LaneMetric(
        name="queue_arrivals_per_second",
        help="Jobs that become due, a second; a moving average.",
        value=lambda lane: lane.arrivals,
    ),
    LaneMetric(
        name="queue_completions_per_second",
        help="Jobs that end, a second; a moving average.",
        value=lambda lane: lane.completions,
    ),
    LaneMetric(
        name="queue_completions",
        help="Jobs that ended in a worker, whatever the end.",
        kind="counter",
        value=lambda lane: lane.completions_total,
    ),
    LaneMetric(
        name="dead_letters",
        help="Failed and dead jobs that wait for a decision, at least; absent while not known.",
        value=lambda lane: lane.dead_letters,
    ),
    LaneMetric(
        name="worker_slots",
        help="Jobs of the queue that its living workers could run at once.",
        value=lambda lane: lane.slots,
    ),
    LaneMetric(
        name="worker_slots_busy",
        help="Jobs of the queue that are held by an attempt; the slots' use is their ratio.",
        value=lambda lane: lane.running,
    ),
    LaneMetric(
        name="workers",
        help="Living workers that serve the queue.",
        value=lambda lane: lane.workers,
    ),
    LaneMetric(
        name="queue_service_rate",
        help="Jobs that one busy slot ends a second; absent until one has ended.",
        value=lambda lane: lane.service_rate,
    ),
    LaneMetric(
        name="desired_workers",
        help="Workers to run for the queue: the scaling advice, within its bounds and calmed.",
        value=lambda lane: lane.desired_workers,
    ),
    LaneMetric(
        name="desired_workers_uncapped",
        help="Workers that the load would ask for now without any bound.",
        value=lambda lane: lane.desired_uncapped,
    ),
)

METRICS: tuple[Metric, ...] = (
    QUEUE_DEPTH,
    QUEUE_OBJECTIVE,
    *LANE_METRICS,
    SCALE_LIMITED,
    OUTBOX_PENDING,
    OUTBOX_OLDEST_AGE,
    SNAPSHOT_TIMESTAMP,
    COLLECTOR_UP,
    COLLECT_DURATION,
)
