"""The panels of the Grafana dashboard, in rows, each with its queries.

Every process that is scraped tells the same, so each query folds with ``max``, never with ``sum`` over
processes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from celery_guard.watch.metrics import PREFIX

QUEUE = '{queue=~"$queue"}'


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A graph: queries with their legends. ``unit`` is Grafana's."""

    title: str
    says: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    wide: int = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels under a question."""

    title: str
    panels: Sequence[Panel]


def _of_queue(metric: str, by: str = "queue") -> str:
    return f"max by ({by}) ({PREFIX}{metric}{QUEUE})"


def _quantile(share: float, metric: str, by: str, within: str = "") -> str:
    rate = f"rate({PREFIX}{metric}_bucket{within}[$__rate_interval])"
    return f"histogram_quantile({share:g}, max by ({by}, le) ({rate}))"


def _per_second(metric: str, by: str, within: str = "") -> str:
    return f"max by ({by}) (rate({PREFIX}{metric}_total{within}[$__rate_interval]))"


_READY = f"max by (queue) ({PREFIX}queue_depth" + '{queue=~"$queue",state="ready"})'
_ENDS = _of_queue("queue_completions_per_second")

ROWS = (
    Row(
        title="Are we late?",
        panels=(
            Panel(
                title="Oldest wait against the objective",
                says="How long the oldest due job has waited. Above its objective the queue is late.",
                queries=(
                    (_of_queue("queue_oldest_age_seconds"), "{{queue}}"),
                    (_of_queue("queue_objective_seconds"), "{{queue}} objective"),
                ),
                unit="s",
                wide=12,
            ),
            Panel(
                title="Time to clear the backlog",
                says="What is ready over what ends a second; no line where nothing ends.",
                queries=((f"{_READY} / ({_ENDS} > 0.01)", "{{queue}}"),),
                unit="s",
                wide=6,
            ),
            Panel(
                title="Late now",
                says="1 while the oldest job is past its objective.",
                queries=(
                    (
                        (
                            f"{_of_queue('queue_oldest_age_seconds')} > bool on (queue)"
                            f" {_of_queue('queue_objective_seconds')}"
                        ),
                        "{{queue}}",
                    ),
                ),
                wide=6,
            ),
        ),
    ),
    Row(
        title="Why?",
        panels=(
            Panel(
                title="Arrivals and completions",
                says="Where arrivals stay above completions, the backlog grows.",
                queries=(
                    (_of_queue("queue_arrivals_per_second"), "{{queue}} come"),
                    (_ENDS, "{{queue}} end"),
                ),
                unit="reqps",
                wide=6,
            ),
            Panel(
                title="In the broker's queues",
                says="Messages of guarded tasks and others. Far more than the lane has ready: work that is not guarded. The age is that of the next in line, on Redis, where messages say when they were sent.",
                queries=(
                    (_of_queue("broker_queue_messages"), "{{queue}} messages"),
                    (_of_queue("broker_queue_oldest_age_seconds"), "{{queue}} seconds"),
                ),
                wide=6,
            ),
            Panel(
                title="Jobs by state",
                says="Counts stop at a bound: read them as at least.",
                queries=((_of_queue("queue_depth", "queue, state"), "{{queue}} {{state}}"),),
                wide=6,
            ),
            Panel(
                title="Time in queue",
                says="From the first due time to the first start, p50, p95 and p99.",
                queries=tuple(
                    (
                        _quantile(share, "job_queue_time_seconds", "queue", QUEUE),
                        f"{{{{queue}}}} p{share * 100:g}",
                    )
                    for share in (0.5, 0.95, 0.99)
                ),
                unit="s",
                wide=6,
            ),
        ),
    ),
    Row(
        title="Workers",
        panels=(
            Panel(
                title="Slots and busy slots",
                says="Jobs that living workers could run at once, and that they do run.",
                queries=(
                    (_of_queue("worker_slots"), "{{queue}} slots"),
                    (_of_queue("worker_slots_busy"), "{{queue}} busy"),
                ),
                wide=6,
            ),
            Panel(
                title="Workers and advice",
                says="What runs, what should run, and what the load asks for without bounds.",
                queries=(
                    (_of_queue("workers"), "{{queue}} run"),
                    (_of_queue("desired_workers"), "{{queue}} advised"),
                    (_of_queue("desired_workers_uncapped"), "{{queue}} without bounds"),
                ),
                wide=6,
            ),
            Panel(
                title="Database connections",
                says="Everybody's, against the most that the server takes; and the fullest of the processes' own pools.",
                queries=(
                    (
                        f"sum by (alias) (max by (alias, state) ({PREFIX}db_connections))",
                        "{{alias}}",
                    ),
                    (f"max by (alias) ({PREFIX}db_connections_limit)", "{{alias}} limit"),
                    (
                        f'max by (alias) ({PREFIX}db_pool_connections{{state="in_use"}})',
                        "{{alias}} pool",
                    ),
                    (f"max by (alias) ({PREFIX}db_pool_connections_limit)", "{{alias}} pool limit"),
                    (f"max by (alias) ({PREFIX}db_pool_waiting)", "{{alias}} wait for the pool"),
                ),
                wide=6,
            ),
            Panel(
                title="Limited by",
                says="The bound that keeps the advice below the load.",
                queries=(
                    (
                        f'max by (queue, by) ({PREFIX}scale_limited{{queue=~"$queue",by!="none"}})',
                        "{{queue}} {{by}}",
                    ),
                ),
                wide=6,
            ),
        ),
    ),
    Row(
        title="Is anything lost or broken?",
        panels=(
            Panel(
                title="Relay: unsent for",
                says="How long the relay has sent nothing while there was something to send.",
                queries=((f"max({PREFIX}outbox_oldest_age_seconds)", "unsent"),),
                unit="s",
                wide=6,
            ),
            Panel(
                title="Relay: could be sent now",
                says="Committed jobs that have not gone to the broker yet.",
                queries=((f"max({PREFIX}outbox_pending_rows)", "pending"),),
                wide=6,
            ),
            Panel(
                title="Dead letters",
                says="Failed and dead jobs that wait for a decision.",
                queries=((_of_queue("dead_letters"), "{{queue}}"),),
                wide=6,
            ),
            Panel(
                title="Rescues, lost leases, duplicates",
                says="What would have been lost or done twice.",
                queries=(
                    (f"sum({_per_second('leases_rescued', 'task')})", "rescued"),
                    (f"sum({_per_second('leases_lost', 'task')})", "lost leases"),
                    (
                        f"sum by (stage) ({_per_second('duplicates_suppressed', 'task, stage')})",
                        "duplicates at {{stage}}",
                    ),
                ),
                unit="reqps",
                wide=6,
            ),
        ),
    ),
    Row(
        title="Dependencies",
        panels=(
            Panel(
                title="Calls granted and refused",
                says="By the limits of the dependency.",
                queries=(
                    (
                        _per_second("dependency_requests", "dependency, result"),
                        "{{dependency}} {{result}}",
                    ),
                    (_per_second("dependency_throttled", "dependency"), "{{dependency}} throttled"),
                    (_per_second("dependency_slowings", "dependency"), "{{dependency}} cut"),
                ),
                unit="reqps",
            ),
            Panel(
                title="Tokens, permits, rate in force",
                says="What may be called at once, what is under way, the part of the rate in force.",
                queries=tuple(
                    (
                        f"max by (dependency) ({PREFIX}dependency_{name})",
                        f"{{{{dependency}}}} {legend}",
                    )
                    for name, legend in (
                        ("tokens", "tokens"),
                        ("permits", "permits"),
                        ("rate_factor", "of its rate"),
                    )
                ),
            ),
            Panel(
                title="Open breakers",
                says="1 while calls are kept away.",
                queries=(
                    (
                        f'max by (dependency, state) ({PREFIX}breaker_state{{state!="closed"}})',
                        "{{dependency}} {{state}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        title="Admission and tenants",
        panels=(
            Panel(
                title="Refused and degraded",
                says="Requests that were told to wait, by why.",
                queries=(
                    (
                        _per_second(
                            "admission_decisions",
                            "queue, decision, reason",
                            '{queue=~"$queue",decision!="accept"}',
                        ),
                        "{{queue}} {{decision}}: {{reason}}",
                    ),
                ),
                unit="reqps",
                wide=12,
            ),
            Panel(
                title="Tenants over their quota",
                says="Refusals by tenant limits. Which tenant it was is in the log, not in a label.",
                queries=(
                    (
                        _per_second(
                            "admission_decisions",
                            "queue, reason",
                            '{queue=~"$queue",reason=~"tenant.*"}',
                        ),
                        "{{queue}} {{reason}}",
                    ),
                ),
                unit="reqps",
                wide=12,
            ),
        ),
    ),
    Row(
        title="Tasks",
        panels=(
            Panel(
                title="Run time, p95",
                says="Of attempts that succeeded.",
                queries=((_quantile(0.95, "job_duration_seconds", "task", QUEUE), "{{task}}"),),
                unit="s",
            ),
            Panel(
                title="Attempts by outcome",
                says="How attempts end.",
                queries=(
                    (
                        "sum by (outcome) ("
                        + _per_second("job_attempts", "queue, task, outcome", QUEUE)
                        + ")",
                        "{{outcome}}",
                    ),
                ),
                unit="reqps",
            ),
            Panel(
                title="Exceptions, the ten most frequent",
                says="By task and class.",
                queries=(
                    (
                        f"topk(10, {_per_second('job_errors', 'task, exception')})",
                        "{{task}} {{exception}}",
                    ),
                ),
                unit="reqps",
            ),
        ),
    ),
    Row(
        title="Are these numbers true?",
        panels=(
            Panel(
                title="Age of the snapshot",
                says="Relays and workers measure every few seconds. When this grows, nobody does.",
                queries=((f"time() - max({PREFIX}snapshot_timestamp_seconds)", "snapshot"),),
                unit="s",
                wide=12,
            ),
            Panel(
                title="Collector",
                says="1 while the database answers the scrape; how long reading took.",
                queries=(
                    (f"min({PREFIX}collector_up)", "up"),
                    (f"max({PREFIX}collect_duration_seconds)", "seconds"),
                ),
                wide=12,
            ),
        ),
    ),
)
