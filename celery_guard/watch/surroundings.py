"""What was measured beside the lanes, as it is scraped: the broker's queues, the databases' connections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from celery_guard.conf import guard_settings
from celery_guard.relay.broker_app import ledgers, load_app
from celery_guard.watch import beside, brokers, database
from celery_guard.watch.beside import Known
from celery_guard.watch.metrics import Metric


def read_all() -> Mapping[str, Known]:
    """What is known, by ledger; the broker stands beside that of the settings."""
    return {
        using: beside.read(using, database.DATABASE, brokers.BROKER)
        for using in ledgers(load_app())
    }


def families(known: Mapping[str, Known]) -> Iterator[Family]:
    """All families of what is known; ages as of the reading."""
    queues = known.get(guard_settings().using, Known(now=0.0, numbers={}))
    ready, oldest = map(_family, brokers.BROKER_METRICS)
    for one in brokers.in_broker(queues):
        ready.add_metric([one.queue], one.messages)
        if one.age is not None:
            oldest.add_metric([one.queue], one.age)
    held, most = map(_family, database.DATABASE_METRICS)
    for alias, found in known.items():
        for state, number in found.of(database.HELD).items():
            held.add_metric([alias, state], number)
        for number in found.of(database.MOST).values():
            most.add_metric([alias], number)
    yield from (ready, oldest, held, most)


def _family(metric: Metric) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.full_name, metric.help, labels=metric.labels)
