"""The Grafana dashboard: a file that loads, whose every query finds something in a scrape."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from celery_guard.events import emit
from celery_guard.models import LaneSnapshot
from celery_guard.watch import database
from celery_guard.watch.counters import series_tally
from celery_guard.watch.grafana import WIDTH
from celery_guard.watch.prometheus import GuardCollector
from celery_guard.watch.snapshot import take_snapshot
from tests.project.shop.tasks import plain

pytestmark = pytest.mark.django_db(transaction=True)

PROMTOOL = shutil.which("promtool")


@pytest.fixture
def board() -> dict[str, Any]:
    """The file as it is printed."""
    call_command("guard_rules", "--grafana", stdout=(out := StringIO()))
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def queries(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def scraped(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Every sample of a whole scrape, with the names of its labels."""
    facts = {"job": 1, "task": "t", "lane": "high", "using": "default", "fence": 1}
    emit("run.began", **facts, waited=1.0)
    emit("run.ended", **facts, outcome="succeeded", error=None, seconds=1.0)
    emit("run.ended", **facts, outcome="failed", error="ValueError", seconds=1.0)
    for name in ("enqueue.duplicate", "run.rescued", "run.lease_lost"):
        emit(name, **facts)
    emit("enqueue.refused", **facts, reason="depth")
    series_tally.flush()
    plain.apply_async(("x",), headers={"sent_at": time.time()})
    take_snapshot("default")
    LaneSnapshot.objects.update(dead_letters=0)
    stats = {"pool_size": 1, "pool_available": 1, "pool_max": 1, "requests_waiting": 0}
    monkeypatch.setattr(database, "pool_stats", lambda using: stats)
    registry = CollectorRegistry()
    registry.register(GuardCollector())
    text = generate_latest(registry).decode()
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_metric_of_every_query_is_in_a_scrape(
    board: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the labels that the query asks for: a panel that is always empty is worse than none."""
    found = scraped(monkeypatch)
    for query in queries(board):
        names = re.findall(r"celery_guard_\w+", query)
        assert names, query
        assert set(names) <= set(found), query
        labels = {label for name in names for label in found[name]}
        asked = re.findall(r"by \(([^)]*)\)", query) + re.findall(r"[{,](\w+)[=!]", query)
        assert {label.strip() for part in asked for label in part.split(",")} <= labels, query


def test_no_process_is_counted_twice(board: dict[str, Any]) -> None:
    """Each metric is folded with max or min before anything is added up."""
    for query in queries(board):
        for place in (found.start() for found in re.finditer(r"celery_guard_", query)):
            before = query[:place].removesuffix("rate(")
            assert re.search(r"(max|min)( by \([^)]*\))? ?\($", before), query


def test_the_panels_fill_their_rows_and_overlap_nowhere(board: dict[str, Any]) -> None:
    """Ids are unique, and a row is as wide as the page."""
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    widths: dict[int, int] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] == widths.get(place["y"], 0)
        widths[place["y"]] = place["x"] + place["w"]
    assert set(widths.values()) == {WIDTH}


def test_the_questions_of_an_operator_have_a_panel(board: dict[str, Any]) -> None:
    """Lateness, backlog, flow, dead letters, dependencies, tenants, slots, relay, snapshot."""
    titles = " ".join(panel["title"].lower() for panel in board["panels"])
    for word in ("objective", "backlog", "arrivals", "dead letters", "dependencies", "tenants"):
        assert word in titles
    for word in ("busy", "relay", "snapshot", "breakers", "time in queue"):
        assert word in titles


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool here (Debian: prometheus)")
def test_prometheus_reads_every_query(board: dict[str, Any], tmp_path: Path) -> None:
    """Written as rules, with Grafana's variables filled in."""
    rules = [
        {"record": f"a:b{place}", "expr": query.replace("$__rate_interval", "5m")}
        for place, query in enumerate(queries(board))
    ]
    (tmp_path / "r.yml").write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    command = [str(PROMTOOL), "check", "rules", "r.yml"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
