"""The counted and timed metrics as they are scraped: from the rows of all processes together."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.utils import floatToGoString

from celery_guard.conf import guard_settings
from celery_guard.relay.broker_app import ledgers, load_app
from celery_guard.watch.counted import COUNTED, INFINITE, MICRO, OTHER, TIMED, Counted, Timed
from celery_guard.watch.models import Series

ROWS_MOST = 20_000

Labels = tuple[str, ...]
Rows = Mapping[str, Mapping[Labels, int]]


def read_all_series() -> Rows:
    """Every number by its name and label values, the ledgers added up; in the order of their rows."""
    found: dict[str, dict[Labels, int]] = {}
    for using in ledgers(load_app()):
        rows = Series.objects.using(using).order_by("pk")[:ROWS_MOST]
        for name, text, value in rows.values_list("name", "labels", "value"):
            labels = tuple(json.loads(text))
            numbers = found.setdefault(name, {})
            numbers[labels] = numbers.get(labels, 0) + value
    return found


def families(rows: Rows) -> Iterator[Family]:
    """All families with their numbers; one that nothing was ever counted for is there and empty."""
    for metric in COUNTED:
        family = CounterMetricFamily(metric.full_name, metric.help, labels=metric.labels)
        for labels, value in _told(metric, [rows.get(metric.name, {})])[0].items():
            family.add_metric(labels, value)
        yield family
    for timed in TIMED:
        yield _histogram(timed, rows)


def empty(metric: Counted | Timed) -> Family:
    """The family without numbers."""
    kind = HistogramMetricFamily if isinstance(metric, Timed) else CounterMetricFamily
    return kind(metric.full_name, metric.help, labels=metric.labels)


def _histogram(metric: Timed, rows: Rows) -> Family:
    family = HistogramMetricFamily(metric.full_name, metric.help, labels=metric.labels)
    begin = f"{metric.name}:"
    parts = [name.removeprefix(begin) for name in rows if name.startswith(begin)]
    known = {float(part) for part in parts if part not in ("sum", INFINITE)}
    # Bounds of other settings stay: what has been counted under them can't be counted anew.
    bounds = [f"{bound:g}" for bound in sorted(known | set(metric.bounds()))]
    names = [*bounds, INFINITE, "sum"]
    told = dict(zip(names, _told(metric, [rows.get(begin + n, {}) for n in names]), strict=True))
    for labels in dict.fromkeys(labels for numbers in told.values() for labels in numbers):
        total, buckets = 0, list[tuple[str, float]]()
        for name in (*bounds, INFINITE):
            total += told[name].get(labels, 0)
            buckets.append((floatToGoString(float(name)), total))  # type: ignore[no-untyped-call]
        family.add_metric(labels, buckets, told["sum"].get(labels, 0) / MICRO)
    return family


def _told(
    metric: Counted | Timed, parts: Sequence[Mapping[Labels, int]]
) -> list[dict[Labels, int]]:
    """``parts`` with queues for lanes, and one name for all labels past the metric's bound."""
    kept = _first(metric, parts)
    return [_folded(metric, part, kept) for part in parts]


def _first(metric: Counted | Timed, parts: Iterable[Mapping[Labels, int]]) -> set[Labels]:
    # The oldest rows keep their names: a number that changed its name would seem to be reset.
    order = dict.fromkeys(labels for part in parts for labels in part if OTHER not in labels)
    return set(list(order)[: metric.most])


def _folded(
    metric: Counted | Timed, part: Mapping[Labels, int], kept: set[Labels]
) -> dict[Labels, int]:
    found: collections.Counter[Labels] = collections.Counter()
    for labels, value in part.items():
        found[_named(metric, labels) if labels in kept else (OTHER,) * len(labels)] += value
    return dict(found)


def _named(metric: Counted | Timed, labels: Labels) -> Labels:
    if metric.labels[0] != "queue" or labels[0] == OTHER:
        return labels
    return (guard_settings().lane(labels[0]).queue, *labels[1:])
