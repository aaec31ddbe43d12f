"""The dependencies as metrics: read from the store of the limits at every scrape, within a limit.

They are no part of the snapshot: the store is one small read, and its counters are exact.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from celery_guard.conf import guard_settings
from celery_guard.errors import LimitsAway
from celery_guard.events import emit
from celery_guard.relay.limits import store
from celery_guard.relay.limits.answers import Breaking, Reading
from celery_guard.relay.limits.rules import MICRO, rules_of
from celery_guard.watch.deadline import Deadline, Overdue
from celery_guard.watch.metrics import Metric

TIME_MOST = 2.0
"""Longest that reading the store may hold up a scrape, in seconds."""

Sample = tuple[tuple[str, ...], float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DependencyMetric(Metric):
    """A metric of dependencies: label values after the dependency's name, and the number."""

    labels: tuple[str, ...] = ("dependency",)
    samples: Callable[[Reading], Iterable[Sample]]


DEPENDENCY_METRICS = (
    DependencyMetric(
        name="dependency_requests",
        help="Calls that asked for leave, by what they were told.",
        labels=("dependency", "result"),
        kind="counter",
        samples=lambda r: [(("granted",), r.granted), (("refused",), r.refused)],
    ),
    DependencyMetric(
        name="dependency_throttled",
        help="Calls that the dependency itself asked to come later.",
        kind="counter",
        samples=lambda r: [((), r.throttled)],
    ),
    DependencyMetric(
        name="dependency_slowings",
        help="How often its rate was cut because too many of its calls failed.",
        kind="counter",
        samples=lambda r: [((), r.slowings)],
    ),
    DependencyMetric(
        name="dependency_tokens",
        help="Calls that its rates would allow at once; absent without a rate.",
        samples=lambda r: [] if r.tokens is None else [((), r.tokens)],
    ),
    DependencyMetric(
        name="dependency_permits",
        help="Calls under way; 0 where concurrency has no bound.",
        samples=lambda r: [((), r.permits)],
    ),
    DependencyMetric(
        name="dependency_rate_factor",
        help="The part of its configured rate that is in force, 0.05 to 1.",
        samples=lambda r: [((), r.factor)],
    ),
    DependencyMetric(
        name="dependency_paused_seconds",
        help="How much longer everybody leaves it alone because it asked for that.",
        samples=lambda r: [((), r.paused / MICRO)],
    ),
    DependencyMetric(
        name="breaker_state",
        help="1 for the state that the breaker is in, 0 for the others.",
        labels=("dependency", "state"),
        samples=lambda r: [((state.value,), float(state == r.breaker)) for state in Breaking],
    ),
    DependencyMetric(
        name="breaker_openings",
        help="How often the breaker has opened.",
        kind="counter",
        samples=lambda r: [((), r.openings)],
    ),
)


def read_all() -> list[Reading]:
    """How every dependency of the settings stands."""
    names = sorted(guard_settings().dependencies)
    return store.read([rules_of(name) for name in names]) if names else []


class Dependencies:
    """The reading of one collector; nothing is said of what can't be read in time."""

    def __init__(self) -> None:
        self._readings = Deadline(read_all, TIME_MOST)

    def collect(self) -> Iterator[Family]:
        """The families with their numbers as of now."""
        readings = self._read()
        for metric in DEPENDENCY_METRICS if readings else ():
            family = _family(metric)
            for reading in readings:
                for values, number in metric.samples(reading):
                    family.add_metric([reading.name, *values], number)
            yield family

    def _read(self) -> Sequence[Reading]:
        if not guard_settings().dependencies:
            return []
        try:
            return self._readings.get()
        except (LimitsAway, Overdue) as error:
            emit("watch.not_collected", logging.WARNING, error=str(error) or "no answer in time")
            return []


def _family(metric: Metric) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.full_name, metric.help, labels=metric.labels)
