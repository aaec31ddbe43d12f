"""What is counted and timed as it happens: each metric by the event that it is made from.

Every process counts for itself and adds up in the database (:mod:`celery_guard.watch.counters`), so
the numbers are those of all processes, also of dead ones. Label values come from code and settings
alone; what goes past a metric's bound is told under ``__other__``.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from django.core import mail

from celery_guard.conf import guard_settings
from celery_guard.events import Event, receive
from celery_guard.watch.counters import series_tally
from celery_guard.watch.metrics import Metric

OTHER = "__other__"
LONGEST = 120
"""Characters of a label value that are kept."""
INFINITE = "+Inf"
MICRO = 1_000_000

Facts = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counted(Metric):
    """How often something happened: ``by`` event name, the values of the labels.

    A lane is kept under its name and told as its queue. ``most`` sets of labels are told apart.
    """

    by: Mapping[str, Callable[[Facts], tuple[str, ...] | None]]
    kind: Literal["gauge", "counter", "histogram"] = "counter"
    most: int = 1000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timed(Metric):
    """How long something took: ``seconds`` of an event, None for one that does not count."""

    event: str
    of: Callable[[Facts], tuple[str, ...]]
    seconds: Callable[[Facts], float | None]
    bounds: Callable[[], tuple[float, ...]]
    kind: Literal["gauge", "counter", "histogram"] = "histogram"
    most: int = 400


def _waits() -> tuple[float, ...]:
    # With the objectives among them, the share of jobs in time is exact.
    return _waits_with(*(lane.objective for lane in guard_settings().lanes.values()))


@functools.lru_cache(maxsize=8)
def _waits_with(*objectives: float) -> tuple[float, ...]:
    usual = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
    return tuple(sorted({*usual, *objectives}))


def _runs() -> tuple[float, ...]:
    return (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120, 600)


TIMED = (
    Timed(
        name="job_queue_time_seconds",
        help="From a job's first due time to its first start.",
        labels=("queue",),
        event="run.began",
        of=lambda facts: (facts["lane"],),
        seconds=lambda facts: facts["waited"],
        bounds=_waits,
    ),
    Timed(
        name="job_duration_seconds",
        help="How long attempts took that succeeded, from the claim to the commit.",
        labels=("queue", "task"),
        event="run.ended",
        of=lambda facts: (facts["lane"], facts["task"]),
        seconds=lambda facts: facts["seconds"] if facts["outcome"] == "succeeded" else None,
        bounds=_runs,
    ),
)

COUNTED = (
    Counted(
        name="job_attempts",
        help="Attempts that ended, by how.",
        labels=("queue", "task", "outcome"),
        by={"run.ended": lambda facts: (facts["lane"], facts["task"], facts["outcome"])},
    ),
    Counted(
        name="job_retries_put_off",
        help="Retries that wait longer because their task or dependency has had its share of them.",
        labels=("task", "dependency"),
        by={"run.retry_put_off": lambda facts: (facts["task"], facts["dependency"])},
    ),
    Counted(
        name="job_errors",
        help="Attempts that ended by an exception, by its class.",
        labels=("task", "exception"),
        by={
            "run.ended": lambda facts: (
                (facts["task"], facts["error"]) if facts["error"] is not None else None
            )
        },
    ),
    Counted(
        name="admission_decisions",
        help="Requests that asked for room where a limit is set, by what they were told and why.",
        labels=("queue", "decision", "reason"),
        by={
            "enqueue.admitted": lambda facts: (facts["lane"], "accept", ""),
            "enqueue.degraded": lambda facts: (facts["lane"], facts["action"], facts["reason"]),
            "enqueue.refused": lambda facts: (facts["lane"], "refuse", facts["reason"]),
        },
    ),
    Counted(
        name="observed_decisions",
        help="Calls under the mode observe, by what the guard would have done with them and why.",
        labels=("queue", "task", "decision", "reason"),
        by={
            "enqueue.observed": lambda facts: (
                *(facts["lane"], facts["task"]),
                *(facts["decision"], facts["reason"]),
            )
        },
    ),
    Counted(
        name="mismatches",
        help="Runs beside the site's own that came to something else.",
        labels=("task",),
        by={"run.compared": lambda facts: (facts["task"],) if facts["difference"] else None},
    ),
    Counted(
        name="duplicates_suppressed",
        help="Second calls under a key, and second deliveries of a message, that made no second run.",
        labels=("task", "stage"),
        by={
            "enqueue.duplicate": lambda facts: (facts["task"], "enqueue"),
            "run.duplicate": lambda facts: (facts["task"], "execute"),
        },
    ),
    Counted(
        name="fallbacks",
        help="Slots of the fallback that were used while the broker was away, by how that ended.",
        labels=("queue", "task", "outcome"),
        by={"run.fell_back": lambda facts: (facts["lane"], facts["task"], facts["outcome"])},
    ),
    Counted(
        name="leases_rescued",
        help="Jobs taken back from attempts that went silent.",
        labels=("task",),
        by={"run.rescued": lambda facts: (facts["task"],)},
    ),
    Counted(
        name="leases_lost",
        help="Attempts that found their job taken back.",
        labels=("task",),
        # The heartbeat says it too, without the fence, before the attempt has ended.
        by={"run.lease_lost": lambda facts: (facts["task"],) if "fence" in facts else None},
    ),
)

ALL_COUNTED: tuple[Counted | Timed, ...] = (*TIMED, *COUNTED)
_known: dict[str, dict[tuple[str, ...], str]] = {}
_COUNTED_BY = {
    event: [(metric, metric.by[event]) for metric in COUNTED if event in metric.by]
    for event in {event for metric in COUNTED for event in metric.by}
}
_TIMED_BY = {
    event: [timed for timed in TIMED if timed.event == event]
    for event in {timed.event for timed in TIMED}
}


@receive
def count(event: Event) -> None:
    """Count what ``event`` says, in this process' memory."""
    counts = [
        (metric.name, _written(metric, labels), 1)
        for metric, labels_of in _COUNTED_BY.get(event.name, ())
        if (labels := labels_of(event.facts)) is not None
    ]
    for timed in _TIMED_BY.get(event.name, ()):
        if (seconds := timed.seconds(event.facts)) is not None:
            labels_text = _written(timed, timed.of(event.facts))
            counts.append((f"{timed.name}:{bucket(timed, seconds)}", labels_text, 1))
            counts.append((f"{timed.name}:sum", labels_text, round(seconds * MICRO)))
    if counts:
        # A test's database is nobody's business five seconds later.
        series_tally.timed = series_tally.timed or not hasattr(mail, "outbox")
        using = event.facts.get("using") or guard_settings().using
        series_tally.count_all(str(using), counts)


def bucket(metric: Timed, seconds: float) -> str:
    """The upper bound of the bucket that ``seconds`` falls into."""
    bounds = metric.bounds()
    place = bisect.bisect_left(bounds, seconds)
    return f"{bounds[place]:g}" if place < len(bounds) else INFINITE


def _written(metric: Counted | Timed, labels: tuple[str, ...]) -> str:
    known = _known.setdefault(metric.name, {})
    if (text := known.get(labels)) is not None:
        return text
    if len(known) >= metric.most:
        return json.dumps([OTHER] * len(labels))
    text = json.dumps([str(value)[:LONGEST] for value in labels], ensure_ascii=False)
    return known.setdefault(labels, text)
