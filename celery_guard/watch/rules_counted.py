"""The rules on what is counted and timed: starts in time, errors, leases, duplicates, refusals.

They are tickets. The wait of a job is known when it starts, so where nothing starts these rules know
nothing; what pages is the age of the oldest job, in :mod:`celery_guard.watch.rules`. Shares count
from so many jobs on only: of three jobs one is a third.
"""

from __future__ import annotations

from collections.abc import Iterator

from celery_guard.watch.alerting import BURNS, WINDOWS, Alert, Record, least
from celery_guard.watch.metrics import PREFIX

BOUND = "celery_guard:queue_objective:bound"
TARDY = "celery_guard:queue_time_late"
ATTEMPTS = "celery_guard:attempts:rate15m"
ERRORS = "celery_guard:attempt_errors:rate15m"
DUPLICATES = "celery_guard:duplicates:rate15m"
LOST = "celery_guard:leases_lost:increase15m"
RESCUED = "celery_guard:leases_rescued:increase15m"
ASKED = "celery_guard:admission_asked:rate10m"
REFUSED = "celery_guard:admission_refused:rate10m"

STARTS_LEAST = 50
"""Starts in the longer window, from which on their share counts."""

_WAITS = f"{PREFIX}job_queue_time_seconds"
_SEEN = f"{PREFIX}snapshot_timestamp_seconds"


def records(objective: str) -> list[Record]:
    """The series that the alerts are made of; ``objective`` is the recorded one, by queue."""
    return [
        Record(name=BOUND, expr=_bound(objective)),
        *(Record(name=f"{TARDY}:ratio_{window}", expr=_late(window)) for window in WINDOWS),
        Record(name=ATTEMPTS, expr=_attempts("succeeded|retry|failed|dead|uncertain")),
        Record(name=ERRORS, expr=_attempts("retry|failed|dead|uncertain")),
        Record(
            name=DUPLICATES,
            expr=f'max by (task) (rate({PREFIX}duplicates_suppressed_total{{stage="execute"}}[15m]))',
        ),
        Record(name=LOST, expr=_more("leases_lost_total")),
        Record(name=RESCUED, expr=_more("leases_rescued_total")),
        Record(name=ASKED, expr=_decisions("")),
        Record(name=REFUSED, expr=_decisions('decision="refuse",')),
    ]


def _bound(objective: str) -> str:
    # An objective is a value and a bucket's bound a label: made one, and printed as bounds are.
    told = f'count_values by (queue) ("le", {objective})'
    return f'label_replace({told}, "le", "${{1}}.0", "le", "([0-9]+)")'


def _late(window: str) -> str:
    in_time = f"max by (queue, le) (rate({_WAITS}_bucket[{window}])) and on (queue, le) {BOUND}"
    starts = f"max by (queue) (rate({_WAITS}_count[{window}]))"
    return f"1 - sum by (queue) ({in_time}) / {starts}"


def _attempts(outcomes: str) -> str:
    # What was put off by a limit or a deploy is neither right nor wrong.
    rate = f'rate({PREFIX}job_attempts_total{{outcome=~"{outcomes}"}}[15m])'
    return f"sum by (task) (max by (queue, task, outcome) ({rate}))"


def _more(name: str) -> str:
    """How many more than a quarter of an hour ago, the very first one too.

    ``increase`` does not see it: before it there was no series. It counts only where something
    was scraped at that time, or a new Prometheus would take all there ever were for news.
    """
    now = f"max by (task) ({PREFIX}{name})"
    then = f"max by (task) ({PREFIX}{name} offset 15m)"
    return f"{now} - ({then} or 0 * {now}) and on () max({_SEEN} offset 15m)"


def _decisions(which: str) -> str:
    # What an operator or a tenant's own limit turns away is no lack of room.
    told = f'{PREFIX}admission_decisions_total{{{which}reason!~"switch|tenant.*"}}'
    return f"sum by (queue) (max by (queue, decision, reason) (rate({told}[10m])))"


def alerts(slo: float) -> list[Alert]:
    """All alerts on counts, for jobs of which ``slo`` per cent are to start in time."""
    return [*_burns(slo), *_COUNTS]


def _burns(slo: float) -> Iterator[Alert]:
    for burn in BURNS:
        most = least(burn, slo)
        yield Alert(
            name=f"CeleryGuardQueueTime{burn.name}",
            expr=f"{TARDY}:ratio_{burn.long} > {most} and {TARDY}:ratio_{burn.short} > {most}"
            f" and on (queue) max by (queue) (increase({_WAITS}_count[{burn.long}])) > {STARTS_LEAST}",
            wait=burn.wait,
            severity="ticket",
            summary="Queue {{ $labels.queue }}: jobs that started past the objective were more than "
            f"{burn.factor:g} times what its budget allows, over {burn.long} and {burn.short}",
        )


_COUNTS = (
    Alert(
        name="CeleryGuardAttemptErrors",
        # 0.011 a second are ten in a quarter of an hour.
        expr=f"{ERRORS} / {ATTEMPTS} > 0.1 and on (task) {ERRORS} > 0.011",
        wait="5m",
        severity="ticket",
        summary="{{ $labels.task }}: more than a tenth of its attempts end by an error",
    ),
    Alert(
        name="CeleryGuardLeasesLost",
        expr=f"{LOST} > 0",
        wait="0m",
        severity="ticket",
        summary="{{ $labels.task }}: attempts found their job taken back while they ran",
    ),
    Alert(
        name="CeleryGuardRescues",
        expr=f"{RESCUED} > 5",
        wait="0m",
        severity="ticket",
        summary="{{ $labels.task }}: more than five jobs were taken back in a quarter of an hour",
    ),
    Alert(
        name="CeleryGuardDuplicates",
        # Where every message is a second one, no attempt ends.
        expr=f"{DUPLICATES} > 0.05 * ({ATTEMPTS} or 0 * {DUPLICATES})"
        f" and on (task) {DUPLICATES} > 0.022",
        wait="5m",
        severity="ticket",
        summary="{{ $labels.task }}: the broker delivers messages a second time",
    ),
    Alert(
        name="CeleryGuardAdmissionRefused",
        expr=f"{REFUSED} / {ASKED} > 0.2 and on (queue) {REFUSED} > 0.033",
        wait="5m",
        severity="ticket",
        summary="Queue {{ $labels.queue }}: more than a fifth of the requests are turned away",
    ),
    Alert(
        name="CeleryGuardBreakerOpen",
        expr=f'max by (dependency) ({PREFIX}breaker_state{{state!="closed"}}) > 0',
        wait="10m",
        severity="ticket",
        summary="Calls to {{ $labels.dependency }} are kept away",
    ),
)
