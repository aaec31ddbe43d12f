"""A scrape as Prometheus reads it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from celery_guard.watch.prometheus import GuardCollector

Samples = dict[tuple[str, tuple[str, ...]], float]


def samples_of(text: str) -> Samples:
    """Every sample by its name and its label values."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(collector: GuardCollector) -> Samples:
    """What a scrape of ``collector`` alone gives."""
    registry = CollectorRegistry()
    registry.register(collector)
    return samples_of(generate_latest(registry).decode())
