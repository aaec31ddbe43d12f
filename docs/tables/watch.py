"""Metrics, as ``celery_guard/watch/metrics.py`` has them."""

from celery_guard.watch.counted import ALL_COUNTED
from celery_guard.watch.metrics import METRICS, Metric
from celery_guard.watch.prometheus import OTHERS
from docs.tables.markdown import code, table


def _metrics() -> list[str]:
    rows = (
        (code(scraped(metric)), metric.kind, ", ".join(map(code, metric.labels)), metric.help)
        for metric in (*METRICS, *ALL_COUNTED, *OTHERS)
    )
    return table(("metric", "kind", "labels", "meaning"), rows)


def scraped(metric: Metric) -> str:
    """The name as Prometheus has it."""
    return metric.full_name + ("_total" if metric.kind == "counter" else "")


TABLES = {"metrics": _metrics}
