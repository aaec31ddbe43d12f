"""The Grafana dashboard as a file for import: it asks for its Prometheus, queues are a variable."""

from __future__ import annotations

from collections.abc import Iterator

from celery_guard.watch.metrics import PREFIX
from celery_guard.watch.panels import ROWS, Panel

WIDTH, HEIGHT = 24, 8


def grafana() -> dict[str, object]:
    """The dashboard as Grafana imports it."""
    return {
        "__inputs": [
            {
                "name": "DS_PROMETHEUS",
                "label": "Prometheus",
                "type": "datasource",
                "pluginId": "prometheus",
            }
        ],
        "title": "celery-guard",
        "uid": "celery-guard",
        "tags": ["celery", "celery-guard"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_queues()]},
        "panels": list(_laid_out()),
    }


def _source() -> dict[str, str]:
    return {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}


def _queues() -> dict[str, object]:
    query = f"label_values({PREFIX}queue_objective_seconds, queue)"
    return {
        "name": "queue",
        "label": "Queue",
        "type": "query",
        "datasource": _source(),
        "query": {"query": query, "refId": "queues"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _laid_out() -> Iterator[dict[str, object]]:
    number, y = 0, 0
    for row in ROWS:
        number += 1
        place = {"h": 1, "w": WIDTH, "x": 0, "y": y}
        yield {"id": number, "type": "row", "title": row.title, "gridPos": place, "panels": []}
        x, y = 0, y + 1
        for panel in row.panels:
            number += 1
            place = {"h": HEIGHT, "w": panel.wide, "x": x, "y": y}
            yield {"id": number, "gridPos": place, **_drawn(panel)}
            x += panel.wide
        y += HEIGHT


def _drawn(panel: Panel) -> dict[str, object]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.says,
        "datasource": _source(),
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expr, "legendFormat": legend}
            for place, (expr, legend) in enumerate(panel.queries)
        ],
    }
