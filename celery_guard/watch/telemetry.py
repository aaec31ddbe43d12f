"""Attempts for OpenTelemetry: messaging metrics, and a span each that is linked to the call.

For whoever runs OpenTelemetry already; the numbers of :mod:`celery_guard.watch.metrics` need none of it.
Names are those of its semantic conventions for messaging, which are still in development. Only spans
carry ids. Needs the extra ``opentelemetry``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from celery import current_task
from opentelemetry import metrics, propagate, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider

from celery_guard.conf import guard_settings
from celery_guard.events import Event, receive

NAME = "celery_guard"
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
NANO = 1_000_000_000

Attributes = dict[str, str | int]


def start(
    *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Tell the attempts of this process to OpenTelemetry from now on.

    Call it where the providers are made: in each worker process, after the fork. A second call takes
    the place of the first.

    :param tracer_provider: instead of the process' global one.
    :param meter_provider: likewise.
    """
    _telling[:] = [_Telling(tracer_provider, meter_provider)]
    receive(_tell)


class _Telling:
    def __init__(self, traces: TracerProvider | None, meters: MeterProvider | None) -> None:
        self._tracer = trace.get_tracer(NAME, tracer_provider=traces)
        meter = metrics.get_meter(NAME, meter_provider=meters)
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            unit="{message}",
            description="Attempts that began.",
        )
        self._took = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="How long attempts took, from the claim to the commit of what came of them.",
            explicit_bucket_boundaries_advisory=BOUNDS,
        )

    def began(self, facts: Mapping[str, Any]) -> None:
        self._consumed.add(1, _common(facts))

    def ended(self, facts: Mapping[str, Any]) -> None:
        attributes = {**_common(facts), "celery_guard.outcome": str(facts["outcome"])}
        if facts["error"] is not None:
            attributes["error.type"] = str(facts["error"])
        self._took.record(facts["seconds"], attributes)
        self._span(facts, attributes)

    def _span(self, facts: Mapping[str, Any], attributes: Attributes) -> None:
        end = time.time_ns()
        span = self._tracer.start_span(
            f"process {facts['task']}",
            kind=SpanKind.CONSUMER,
            links=_call(),
            attributes={**attributes, "celery_guard.job": str(facts["job"])},
            start_time=end - round(facts["seconds"] * NANO),
        )
        if "error.type" in attributes:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end)


_telling: list[_Telling] = []


def _tell(event: Event) -> None:
    for telling in _telling:
        match event.name:
            case "run.began":
                telling.began(event.facts)
            case "run.ended":
                telling.ended(event.facts)


def _common(facts: Mapping[str, Any]) -> Attributes:
    return {
        "messaging.system": "celery",
        "messaging.operation.name": "process",
        "messaging.destination.name": guard_settings().lane(str(facts["lane"])).queue,
        "celery_guard.task": str(facts["task"]),
    }


def _call() -> list[Link]:
    """The span in which the job was asked for; it may have ended days ago, so it is no parent."""
    request = getattr(current_task, "request", None)
    headers = {name: getattr(request, name, None) for name in propagate.get_global_textmap().fields}
    carrier = {name: value for name, value in headers.items() if isinstance(value, str)}
    found = trace.get_current_span(propagate.extract(carrier)).get_span_context()
    return [Link(found)] if carrier and found.is_valid else []
