"""The collector that turns snapshot and counts into metrics at every scrape."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from django.db import DatabaseError, InterfaceError
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.watch import metrics, series, surroundings
from celery_guard.watch.brokers import BROKER_METRICS
from celery_guard.watch.counted import ALL_COUNTED
from celery_guard.watch.database import DATABASE_METRICS, POOL_METRICS, pools
from celery_guard.watch.deadline import Deadline, Overdue
from celery_guard.watch.dependencies import DEPENDENCY_METRICS, Dependencies
from celery_guard.watch.lanes import LaneView
from celery_guard.watch.ledgers import read_all_lanes
from celery_guard.watch.metrics import METRICS, Metric
from celery_guard.watch.scaling import LIMITS

T = TypeVar("T")

OTHERS = (*BROKER_METRICS, *DATABASE_METRICS, *POOL_METRICS, *DEPENDENCY_METRICS)
TIME_MOST = 2.0
"""Longest that reading the snapshot may hold up a scrape, in seconds."""


class GuardCollector(Collector):
    """All metrics of :data:`celery_guard.watch.metrics.METRICS`, those that are counted, and those of the
    dependencies.

    Registering it asks the database nothing. A scrape costs three queries a ledger; when the database does
    not answer within ``TIME_MOST``, it says ``collector_up 0`` and leaves out what it can't know.
    """

    def __init__(self) -> None:
        self._lanes = Deadline(read_all_lanes, TIME_MOST)
        self._series = Deadline(series.read_all_series, TIME_MOST)
        self._surroundings = Deadline(surroundings.read_all, TIME_MOST)
        self._dependencies = Dependencies()

    def describe(self) -> Iterable[Family]:
        """The families without samples; without this, registering would collect."""
        plain = [_family(metric) for metric in (*METRICS, *OTHERS)]
        return [*plain, *map(series.empty, ALL_COUNTED)]

    def collect(self) -> Iterator[Family]:
        """The families with the newest snapshot's numbers."""
        started = time.perf_counter()
        lanes = self.read()
        yield _single(metrics.COLLECTOR_UP, 0 if lanes is None else 1)
        yield _single(metrics.COLLECT_DURATION, time.perf_counter() - started)
        objectives = _family(metrics.QUEUE_OBJECTIVE)
        for lane in guard_settings().lanes.values():
            objectives.add_metric([lane.queue], lane.objective)
        yield objectives
        if lanes:
            yield from _measured(lanes)
        if lanes is not None and (rows := _within(self._series)) is not None:
            yield from series.families(rows)
        if lanes is not None and (known := _within(self._surroundings)) is not None:
            yield from surroundings.families(known)
        yield from pools()
        yield from self._dependencies.collect()

    def read(self) -> Sequence[LaneView] | None:
        """The newest snapshot, within ``TIME_MOST``; None when the database does not answer."""
        return _within(self._lanes)


def _within(reading: Deadline[T]) -> T | None:
    try:
        return reading.get()
    except Overdue:
        emit("watch.not_collected", logging.WARNING, error="the database does not answer")
    except (DatabaseError, InterfaceError) as error:
        emit("watch.not_collected", logging.WARNING, error=str(error))
    return None


def _measured(lanes: Sequence[LaneView]) -> Iterator[Family]:
    depth = _family(metrics.QUEUE_DEPTH)
    for lane in lanes:
        for state in metrics.DEPTH_STATES:
            depth.add_metric([lane.queue, state], getattr(lane, state))
    yield depth
    for metric in metrics.LANE_METRICS:
        family = _family(metric)
        for lane in lanes:
            if (value := metric.value(lane)) is not None:
                family.add_metric([lane.queue], value)
        yield family
    yield _limited(lanes)
    yield _single(metrics.OUTBOX_PENDING, sum(lane.pending for lane in lanes))
    yield _single(metrics.OUTBOX_OLDEST_AGE, max(lane.stuck_for for lane in lanes))
    yield _single(metrics.SNAPSHOT_TIMESTAMP, min(_unix(lane) for lane in lanes))


def _limited(lanes: Sequence[LaneView]) -> Family:
    family = _family(metrics.SCALE_LIMITED)
    for lane in lanes:
        for by in LIMITS if lane.limited_by else ():
            family.add_metric([lane.queue, by], lane.limited_by == by)
    return family


def _unix(lane: LaneView) -> float:
    return lane.taken_at.timestamp()


def _family(metric: Metric) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.full_name, metric.help, labels=metric.labels)


def _single(metric: Metric, value: float) -> Family:
    family = _family(metric)
    family.add_metric([], value)
    return family


@functools.cache
def collector() -> GuardCollector:
    """The collector of this process."""
    return GuardCollector()


def register(registry: CollectorRegistry = REGISTRY) -> bool:
    """Add the collector to ``registry`` once; False when its names are taken already."""
    try:
        registry.register(collector())
    except ValueError as error:
        emit("watch.metrics_not_registered", logging.DEBUG, error=str(error))
        return False
    return True
