"""Prometheus rules made from the objectives: what to be woken by, and what to look at by day.

Lateness is judged by time, not by jobs: the share of time in which a queue's oldest job was over
its objective. Where no job starts at all, nothing that counts jobs would notice. The thresholds are
burn rates of the error budget (1 - SLO) over pairs of windows, as the SRE workbook has them; every
process that is scraped tells the same, so everything is folded with ``max``, never with ``sum``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from celery_guard.watch import rules_counted
from celery_guard.watch.alerting import BURNS, WINDOWS, Alert, Record, least
from celery_guard.watch.metrics import PREFIX

AGE = "celery_guard:queue_age:seconds"
OBJECTIVE = "celery_guard:queue_objective:seconds"
ARRIVALS = "celery_guard:arrivals:rate"
COMPLETIONS = "celery_guard:completions:rate10m"
READY = "celery_guard:queue_ready:jobs"
LATE = "celery_guard:queue_late"
DEAD_LETTERS = "celery_guard:dead_letters:jobs"


def records() -> list[Record]:
    """The series that the alerts are made of."""
    ready = f'{PREFIX}queue_depth{{state="ready"}}'
    return [
        Record(name=AGE, expr=f"max by (queue) ({PREFIX}queue_oldest_age_seconds)"),
        Record(name=OBJECTIVE, expr=f"max by (queue) ({PREFIX}queue_objective_seconds)"),
        Record(name=READY, expr=f"max by (queue) ({ready})"),
        Record(name=ARRIVALS, expr=f"max by (queue) ({PREFIX}queue_arrivals_per_second)"),
        Record(
            name=COMPLETIONS, expr=f"max by (queue) (rate({PREFIX}queue_completions_total[10m]))"
        ),
        Record(name=DEAD_LETTERS, expr=f"max by (queue) ({PREFIX}dead_letters)"),
        Record(name=f"{LATE}:bool", expr=f"{AGE} > bool {OBJECTIVE}"),
        *(
            Record(name=f"{LATE}:ratio_{window}", expr=f"avg_over_time({LATE}:bool[{window}])")
            for window in WINDOWS
        ),
        *rules_counted.records(OBJECTIVE),
    ]


def alerts(slo: float) -> list[Alert]:
    """All alerts, for queues that are to be in time for ``slo`` per cent of the time."""
    return [*_burns(slo), *_TRENDS, *_FAULTS, *rules_counted.alerts(slo)]


def _burns(slo: float) -> Iterator[Alert]:
    for burn in BURNS:
        most = least(burn, slo)
        yield Alert(
            name=f"CeleryGuardQueueAge{burn.name}",
            expr=f"{LATE}:ratio_{burn.long} > {most} and {LATE}:ratio_{burn.short} > {most}",
            wait=burn.wait,
            severity=burn.severity,
            summary=f"Queue {{{{ $labels.queue }}}} was late for more than {burn.factor:g} times "
            f"what its budget allows, over {burn.long} and {burn.short}",
        )


_TRENDS = (
    Alert(
        name="CeleryGuardBacklogGrowing",
        # A queue whose workers are dead may have no completions at all, not even a zero.
        expr=f"{ARRIVALS} > 1.1 * ({COMPLETIONS} or 0 * {ARRIVALS})"
        f" and on (queue) deriv({AGE}[10m]) > 0.05 and on (queue) {READY} > 20",
        wait="10m",
        severity="ticket",
        summary="Queue {{ $labels.queue }}: more arrive than end, and the oldest job gets older",
    ),
    Alert(
        name="CeleryGuardBreachPredicted",
        expr=f"predict_linear({AGE}[15m], 1800) > on (queue) {OBJECTIVE}"
        f" and on (queue) {AGE} < on (queue) {OBJECTIVE}"
        f" and on (queue) deriv({AGE}[15m]) > 0.02",
        wait="5m",
        severity="ticket",
        summary="Queue {{ $labels.queue }} will pass its objective within half an hour",
    ),
    Alert(
        name="CeleryGuardScaleLimited",
        expr=f'max by (queue) ({PREFIX}scale_limited{{by!="none"}}) > 0'
        f" and on (queue) {AGE} > on (queue) {OBJECTIVE}",
        wait="15m",
        severity="ticket",
        summary="Queue {{ $labels.queue }} is late and needs more workers than a bound allows",
    ),
)

_FAULTS = (
    Alert(
        name="CeleryGuardOutboxStuck",
        expr=f"max({PREFIX}outbox_oldest_age_seconds) > 60",
        wait="5m",
        severity="page",
        summary="Committed jobs do not reach the broker",
    ),
    Alert(
        name="CeleryGuardDatabaseFull",
        expr=f"sum by (alias) (max by (alias, state) ({PREFIX}db_connections))"
        f" > 0.85 * max by (alias) ({PREFIX}db_connections_limit)",
        wait="5m",
        severity="ticket",
        summary="Database {{ $labels.alias }}: more than 85 % of its connections are taken",
    ),
    Alert(
        name="CeleryGuardSnapshotStale",
        expr=f"time() - max({PREFIX}snapshot_timestamp_seconds) > 120",
        wait="2m",
        severity="page",
        summary="Nobody measures: no relay and no worker runs, or the database is away",
    ),
    Alert(
        name="CeleryGuardMetricsAbsent",
        expr=f"absent({PREFIX}snapshot_timestamp_seconds)",
        wait="5m",
        severity="page",
        summary="No numbers of celery-guard are scraped",
    ),
    Alert(
        name="CeleryGuardCollectorDown",
        expr=f"max({PREFIX}collector_up) == 0",
        wait="5m",
        severity="page",
        summary="The snapshot cannot be read: the database does not answer",
    ),
    Alert(
        name="CeleryGuardDeadLetters",
        expr=f"delta({DEAD_LETTERS}[15m]) > 0",
        wait="0m",
        severity="ticket",
        summary="Queue {{ $labels.queue }}: jobs failed for good in the last quarter of an hour",
    ),
)


def groups(slo: float) -> dict[str, Sequence[Record | Alert]]:
    """All rules by the group that evaluates them."""
    return {"celery_guard_records": records(), "celery_guard_alerts": alerts(slo)}
