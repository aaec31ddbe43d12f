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

from celery_guard.watch.alerting import Alert
from celery_guard.watch.prometheus import GuardCollector
from celery_guard.watch.rules import alerts, groups, records
from tests.kit.ground import ROOT

PROMTOOL = shutil.which("promtool")
promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool here (Debian: prometheus)")

AGE = 'celery_guard_queue_oldest_age_seconds{queue="high"}'
GOAL = 'celery_guard_queue_objective_seconds{queue="high"}'
READY = 'celery_guard_queue_depth{queue="high",state="ready"}'
COME = 'celery_guard_queue_arrivals_per_second{queue="high"}'
GO = 'celery_guard_queue_completions_total{queue="high"}'
NAMED = {"queue": "high", "task": "shop.pay", "dependency": "bank", "alias": "default"}
SEEN = "celery_guard_snapshot_timestamp_seconds"
ALIVE = {SEEN: "0+30x400", "celery_guard_collector_up": "1x400"}
STEADY = {AGE: "3 1 5 2 4 0 6 2 1 3" + " 2" * 390, GOAL: "60x400", READY: "10x400", GO: "0+60x400"}


ENDINGS = {"counter": ("", "_total"), "histogram": ("_bucket", "_count", "_sum")}


def attempts(outcome: str) -> str:
    return f'celery_guard_job_attempts_total{{queue="high",task="shop.pay",outcome="{outcome}"}}'


def starts(late: int, *, most: int = 10) -> dict[str, str]:
    """Ten starts in half a minute, so many of them past the objective of ten seconds."""
    waits = 'celery_guard_job_queue_time_seconds_{}{{queue="high"{}}}'
    in_time = most - late
    return {
        GOAL: "10x150",
        waits.format("bucket", ',le="5.0"'): f"0+{in_time / 2:g}x150",
        waits.format("bucket", ',le="10.0"'): f"0+{in_time}x150",
        waits.format("bucket", ',le="+Inf"'): f"0+{most}x150",
        waits.format("count", ""): f"0+{most}x150",
        SEEN: "0+30x150",
        "celery_guard_collector_up": "1x150",
    }


def decisions(decision: str, reason: str) -> str:
    told = f'queue="high",decision="{decision}",reason="{reason}"'
    return f"celery_guard_admission_decisions_total{{{told}}}"


DUPLICATE = 'celery_guard_duplicates_suppressed_total{task="shop.pay",stage="execute"}'
REPEATED = 'celery_guard_duplicates_suppressed_total{task="shop.pay",stage="enqueue"}'
LOST = 'celery_guard_leases_lost_total{task="shop.pay"}'
RESCUED = 'celery_guard_leases_rescued_total{task="shop.pay"}'
CONNECTIONS = 'celery_guard_db_connections{alias="default",state="%s",instance="%s"}'
BREAKER = 'celery_guard_breaker_state{dependency="bank",state="%s"}'


def printed(*options: str) -> str:
    call_command("guard_rules", *options, stdout=(out := StringIO()))
    return out.getvalue()


def test_every_metric_that_a_rule_names_is_exported() -> None:
    """And every recorded series that is used is recorded."""
    names = set()
    for family in GuardCollector().describe():
        names |= {family.name + end for end in ENDINGS.get(family.type, ("",))}
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
    told = re.findall(r"{{ \$labels\.(\w+) }}", alert.summary)
    labels = {"severity": alert.severity, **{label: NAMED[label] for label in told}}
    summary = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: NAMED[found[1]], alert.summary)
    annotations = {"summary": summary}
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
CASES |= {
    "one start of five is late, and the oldest job never is": (
        starts(late=2),
        {
            "CeleryGuardQueueTimeFastBurn": "70m",
            "CeleryGuardQueueTimeSlowBurn": "70m",
            "CeleryGuardQueueTimeTicketBurn": "70m",
        },
        {"CeleryGuardQueueAgeFastBurn": "70m", "CeleryGuardQueueAgeTicketBurn": "70m"},
    ),
    "starts in time, as many as one likes": (
        starts(late=0),
        {},
        {f"CeleryGuardQueueTime{name}Burn": "70m" for name in ("Fast", "Slow", "Ticket")},
    ),
    "a few starts at night, all of them late": (
        {
            **starts(late=0),
            **{name: "0x90 0+1x30 30x30" for name in starts(late=0) if "+Inf" in name},
            **{name: "0x90 0+1x30 30x30" for name in starts(late=0) if "_count" in name},
            **{name: "0x150" for name in starts(late=0) if re.search(r'le="\d', name)},
        },
        {},
        {f"CeleryGuardQueueTime{name}Burn": "61m" for name in ("Fast", "Slow", "Ticket")},
    ),
    "an objective of half a second has a bound too": (
        {
            **{name.replace('"10.0"', '"0.5"'): v for name, v in starts(late=2).items()},
            GOAL: "0.5x150",
        },
        {"CeleryGuardQueueTimeFastBurn": "70m"},
        {},
    ),
    "a fifth of the attempts fail": (
        {attempts("succeeded"): "0+8x80", attempts("retry"): "0+2x80", **ALIVE},
        {"CeleryGuardAttemptErrors": "25m"},
        {},
    ),
    "attempts are put off, and one of many fails": (
        {
            attempts("succeeded"): "0+96x80",
            attempts("snooze"): "0+90x80",
            attempts("dead"): "0+4x80",
            **ALIVE,
        },
        {},
        {"CeleryGuardAttemptErrors": "25m"},
    ),
    "three attempts fail in a quiet hour, three messages come twice, three requests find no room": (
        dict.fromkeys(
            (attempts("failed"), DUPLICATE, decisions("refuse", "depth")), "0x40 1x5 2x5 3x30"
        )
        | ALIVE,
        {},
        dict.fromkeys(
            ("CeleryGuardAttemptErrors", "CeleryGuardDuplicates", "CeleryGuardAdmissionRefused"),
            "27m",
        ),
    ),
    "the first lease that was ever lost": (
        {LOST: "_x40 1x80", **ALIVE},
        {"CeleryGuardLeasesLost": "25m"},
        {"CeleryGuardLeasesLost": "40m", "CeleryGuardRescues": "25m"},
    ),
    "a new Prometheus meets old numbers": (
        {LOST: "70x80", RESCUED: "90x80", **ALIVE},
        {},
        {"CeleryGuardLeasesLost": "5m", "CeleryGuardRescues": "5m"},
    ),
    "a new web process tells the old numbers": (
        {
            LOST.replace("}", ',instance="1"}'): "70x20 stale",
            LOST.replace("}", ',instance="2"}'): "_x20 70x60",
            **ALIVE,
        },
        {},
        {"CeleryGuardLeasesLost": "20m"},
    ),
    "many jobs are rescued": (
        {RESCUED: "3x40 9x40", **ALIVE},
        {"CeleryGuardRescues": "22m"},
        {"CeleryGuardRescues": "18m", "CeleryGuardLeasesLost": "22m"},
    ),
    "every message is a second one": (
        {DUPLICATE: "0+5x80", **ALIVE},
        {"CeleryGuardDuplicates": "25m"},
        {},
    ),
    "callers repeat themselves, and of many messages a few come twice": (
        {
            REPEATED: "0+50x80",
            DUPLICATE: "0+2x80",
            attempts("succeeded"): "0+98x80",
            **ALIVE,
        },
        {},
        {"CeleryGuardDuplicates": "25m"},
    ),
    "a third of the requests find no room": (
        {decisions("accept", ""): "0+6x80", decisions("refuse", "depth"): "0+3x80", **ALIVE},
        {"CeleryGuardAdmissionRefused": "25m"},
        {},
    ),
    "a tenant and an operator turn requests away": (
        {
            decisions("accept", ""): "0+6x80",
            decisions("refuse", "switch"): "0+60x80",
            decisions("refuse", "tenant_rate"): "0+60x80",
            **ALIVE,
        },
        {},
        {"CeleryGuardAdmissionRefused": "25m"},
    ),
    "two processes tell of a database that fills up": (
        {
            CONNECTIONS % ("idle", "1"): "70x100",
            CONNECTIONS % ("active", "1"): "10x30 17x70",
            CONNECTIONS % ("idle", "2"): "70x100",
            'celery_guard_db_connections_limit{alias="default"}': "100x100",
            **ALIVE,
        },
        {"CeleryGuardDatabaseFull": "25m"},
        {"CeleryGuardDatabaseFull": "14m"},
    ),
    "a breaker stays open": (
        {
            BREAKER % "closed": "1x10 0x60",
            BREAKER % "open": "0x10 1x9 0x9 1x40",
            BREAKER % "half_open": "0x20 1x9 0x40",
            **ALIVE,
        },
        {"CeleryGuardBreakerOpen": "17m"},
        {"CeleryGuardBreakerOpen": "12m"},
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
