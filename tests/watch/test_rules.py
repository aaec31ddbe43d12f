"""The alert rules: they parse, fire for the right thing, and stay silent else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from celery_guard.watch.prometheus import GuardCollector
from celery_guard.watch.rules import Alert, alerts, groups, records
from tests.kit.ground import ROOT

PROMTOOL = shutil.which("promtool")
promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool here (Debian: prometheus)")

AGE = 'celery_guard_queue_oldest_age_seconds{queue="high"}'
GOAL = 'celery_guard_queue_objective_seconds{queue="high"}'
READY = 'celery_guard_queue_depth{queue="high",state="ready"}'
COME = 'celery_guard_queue_arrivals_per_second{queue="high"}'
GO = 'celery_guard_queue_completions_total{queue="high"}'
SEEN = "celery_guard_snapshot_timestamp_seconds"
ALIVE = {SEEN: "0+30x400", "celery_guard_collector_up": "1x400"}
STEADY = {AGE: "3 1 5 2 4 0 6 2 1 3" + " 2" * 390, GOAL: "60x400", READY: "10x400", GO: "0+60x400"}


def printed(*options: str) -> str:
    call_command("guard_rules", *options, stdout=(out := StringIO()))
    return out.getvalue()


def test_every_metric_that_a_rule_names_is_exported() -> None:
    """And every recorded series that is used is recorded."""
    names = set()
    for family in GuardCollector().describe():
        names |= (
            {family.name, f"{family.name}_total"} if family.type == "counter" else {family.name}
        )
    text = " ".join(rule.expr for rules in groups(99).values() for rule in rules)
    assert set(re.findall(r"\bcelery_guard_[a-z_]+", text)) <= names
    used = set(re.findall(r"\bcelery_guard:[a-z_:0-9]+", text))
    assert used <= {record.name for record in records()}


def test_every_alert_has_a_place_in_the_runbook() -> None:
    """Under its own name, so that the link in the page leads there."""
    told = re.findall(
        r"^## (CeleryGuard\w+)$", (ROOT / "docs/operations/alerts.md").read_text(), re.MULTILINE
    )
    assert sorted(told) == sorted(alert.name for alert in alerts(99))


@pytest.mark.parametrize("slo", [50, 90, 93, 99, 99.99])
def test_every_burn_rate_can_be_reached(slo: float) -> None:
    """A queue that is late all the time must pass every threshold, whatever the SLO."""
    for alert in alerts(slo):
        for least in re.findall(r"ratio_\w+ > ([\d.]+)", alert.expr):
            assert 0 < float(least) < 1


@pytest.mark.parametrize("slo", ["100", "0", "49.9", "-1", "nan"])
def test_an_slo_without_sense_is_refused(slo: str) -> None:
    """100 per cent leaves no budget; 0.99 was meant as 99."""
    with pytest.raises(CommandError, match="per cent"):
        printed(f"--slo={slo}")


def test_the_runbook_can_be_elsewhere() -> None:
    """A site has its own copy."""
    assert '"https://docs.example/#celeryguardoutboxstuck"' in printed(
        "--runbook=https://docs.example/"
    )


def test_no_link_is_made_up() -> None:
    """Without an address there is no annotation: a dead link is worse than none at night."""
    assert "runbook_url" not in printed("--slo=99")


@promtool
def test_the_file_is_one_that_prometheus_reads(tmp_path: Path) -> None:
    """As printed."""
    (tmp_path / "rules.yml").write_text(printed("--slo=99.5"))
    run(tmp_path, "check", "rules", "rules.yml")


def run(where: Path, *command: str) -> None:
    answer = subprocess.run([str(PROMTOOL), *command], cwd=where, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def expected(name: str, *, fires: bool) -> list[dict[str, Any]]:
    """What promtool compares with: labels and annotations, whole."""
    alert: Alert = next(alert for alert in alerts(99) if alert.name == name)
    labels = {"severity": alert.severity}
    if "$labels.queue" in alert.summary:
        labels["queue"] = "high"
    annotations = {"summary": alert.summary.replace("{{ $labels.queue }}", "high")}
    return [{"exp_labels": labels, "exp_annotations": annotations}] if fires else []


CASES: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str]]] = {
    "workers are dead: nothing ends, and what counts jobs sees nothing": (
        {AGE: "0x20 0+30x300", GOAL: "300x320", READY: "0x20 0+60x300", COME: "2x320", **ALIVE},
        {"CeleryGuardQueueAgeFastBurn": "40m", "CeleryGuardBacklogGrowing": "40m"},
        {"CeleryGuardQueueAgeFastBurn": "12m"},
    ),
    "a backlog grows while jobs end": (
        {
            AGE: "0+6x300",
            GOAL: "3600x300",
            READY: "0+60x300",
            COME: "4x300",
            GO: "0+60x300",
            **ALIVE,
        },
        {"CeleryGuardBacklogGrowing": "40m"},
        {"CeleryGuardQueueAgeFastBurn": "40m"},
    ),
    "a slow creep is told half an hour ahead": (
        {AGE: "0+3x100", GOAL: "400x100", **ALIVE},
        {"CeleryGuardBreachPredicted": "45m"},
        {"CeleryGuardQueueAgeFastBurn": "45m"},
    ),
    "a quiet night": (
        {**STEADY, COME: "2x400", 'celery_guard_dead_letters{queue="high"}': "3x400", **ALIVE},
        {},
        {alert.name: "180m" for alert in alerts(99)},
    ),
    "two web processes tell the same": (
        {
            AGE.replace("}", ',instance="1"}'): "0x20 0+30x300",
            AGE.replace("}", ',instance="2"}'): "0x20 0+30x300",
            GOAL.replace("}", ',instance="1"}'): "300x320",
            **ALIVE,
        },
        {"CeleryGuardQueueAgeFastBurn": "40m"},
        {},
    ),
    "late for a little every hour": (
        {
            AGE: "400x9 1x111 400x9 1x111 400x9 1x111 400x9 1x111 400x9 1x111 400x9 1x111 400x60",
            GOAL: "300x800",
            SEEN: "0+30x800",
            "celery_guard_collector_up": "1x800",
        },
        {"CeleryGuardQueueAgeSlowBurn": "380m", "CeleryGuardQueueAgeTicketBurn": "385m"},
        {"CeleryGuardQueueAgeSlowBurn": "100m"},
    ),
    "the measuring stops": (
        {SEEN: "0+30x10 300x60"},
        {"CeleryGuardSnapshotStale": "12m"},
        {"CeleryGuardSnapshotStale": "6m", "CeleryGuardMetricsAbsent": "12m"},
    ),
    "nothing is scraped": (
        {},
        {"CeleryGuardMetricsAbsent": "12m"},
        {"CeleryGuardSnapshotStale": "12m"},
    ),
    "the database is away": (
        {SEEN: "0+30x4 stale", "celery_guard_collector_up": "1x4 0x60"},
        {"CeleryGuardCollectorDown": "12m"},
        {"CeleryGuardCollectorDown": "3m"},
    ),
    "the relay sends nothing": (
        {"celery_guard_outbox_oldest_age_seconds": "0x10 0+30x60", **ALIVE},
        {"CeleryGuardOutboxStuck": "20m"},
        {"CeleryGuardOutboxStuck": "9m"},
    ),
    "jobs fail for good": (
        {'celery_guard_dead_letters{queue="high"}': "3x40 5x40", **ALIVE},
        {"CeleryGuardDeadLetters": "22m"},
        {"CeleryGuardDeadLetters": "15m"},
    ),
    "a bound keeps the workers away": (
        {
            AGE: "400x80",
            GOAL: "300x80",
            'celery_guard_scale_limited{queue="high",by="max"}': "1x80",
            'celery_guard_scale_limited{queue="high",by="none"}': "0x80",
            **ALIVE,
        },
        {"CeleryGuardScaleLimited": "30m"},
        {"CeleryGuardScaleLimited": "10m"},
    ),
}


@promtool
@pytest.mark.bar
@pytest.mark.parametrize("case", CASES)
def test_alerts_fire_for_the_right_thing(case: str, tmp_path: Path) -> None:
    """Each case names what fires when, and what is silent then."""
    series, fire, silent = CASES[case]
    wanted = [
        {"eval_time": at, "alertname": name, "exp_alerts": expected(name, fires=fires)}
        for names, fires in ((fire, True), (silent, False))
        for name, at in names.items()
    ]
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": [{"series": n, "values": v} for n, v in series.items()],
                "alert_rule_test": wanted,
            }
        ],
    }
    (tmp_path / "rules.yml").write_text(printed())
    (tmp_path / "test.yml").write_text(json.dumps(test))
    run(tmp_path, "test", "rules", "test.yml")


def test_every_alert_is_seen_to_fire() -> None:
    """An alert that no case makes fire has never been seen."""
    fired = {name for _, fire, _ in CASES.values() for name in fire}
    assert fired == {alert.name for alert in alerts(99)}
