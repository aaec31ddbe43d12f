"""Attempts as OpenTelemetry sees them, with its own SDK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import propagate
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from celery_guard import events
from celery_guard.conf import guard_settings
from celery_guard.testing import drain
from celery_guard.watch import telemetry
from tests.flows.confiding import keep
from tests.project.shop import tasks
from tests.project.shop.witness import traces

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]

ADD = "tests.project.shop.tasks.add"
SECRET = "swordfish-4111-1111"
VERDICT = "tests.project.shop.tasks.verdict"


class Seen:
    """Providers that keep what they are told."""

    def __init__(self) -> None:
        self.reader, self.spans = InMemoryMetricReader(), InMemorySpanExporter()
        self.meters = MeterProvider(metric_readers=[self.reader])
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self.spans))

    def points(self, name: str) -> dict[tuple[str, str], Any]:
        """The data points of a metric by task and outcome."""
        data = self.reader.get_metrics_data()
        every = data.resource_metrics if data is not None else ()
        return {
            (str(of["celery_guard.task"]), str(of.get("celery_guard.outcome", ""))): point
            for resource in every
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
            for of in [dict(point.attributes or {})]
        }


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """What this process tells, from now on and until the test's end."""
    monkeypatch.setattr(events, "_receivers", list(events._receivers))
    monkeypatch.setattr(telemetry, "_telling", [])
    found = Seen()
    telemetry.start(tracer_provider=found.traces, meter_provider=found.meters)
    yield found
    found.meters.shutdown()
    found.traces.shutdown()


def test_attempts_are_counted_and_timed_under_the_conventions_names(
    seen: Seen, scratch: Path
) -> None:
    """Success and failure apart, the failure by its class; no id in a metric."""
    tasks.add.delay(1, 2)
    tasks.verdict.delay("name", "bug")
    drain()
    assert {
        t: p.value for (t, _), p in seen.points("messaging.client.consumed.messages").items()
    } == {
        ADD: 1,
        VERDICT: 1,
    }
    took = seen.points("messaging.process.duration")
    assert {place: point.count for place, point in took.items()} == {
        (ADD, "succeeded"): 1,
        (VERDICT, "failed"): 1,
    }
    assert dict(took[VERDICT, "failed"].attributes) == {
        "messaging.system": "celery",
        "messaging.operation.name": "process",
        "messaging.destination.name": guard_settings().lane("medium").queue,
        "celery_guard.task": VERDICT,
        "celery_guard.outcome": "failed",
        "error.type": "ZeroDivisionError",
    }
    assert took[ADD, "succeeded"].explicit_bounds == telemetry.BOUNDS


@pytest.mark.bar
def test_a_span_is_linked_to_the_call_and_no_child_of_it(seen: Seen, scratch: Path) -> None:
    """The call may be days ago; a retry of the message has its own span and the same link."""
    headers: dict[str, str] = {}
    with seen.traces.get_tracer("site").start_as_current_span("request") as call:
        propagate.inject(headers)
        tasks.verdict.apply_async(("name", "bug"), headers=headers)
    seen.spans.clear()
    drain()
    (span,) = seen.spans.get_finished_spans()
    assert (span.name, span.parent) == (f"process {VERDICT}", None)
    assert [link.context.span_id for link in span.links] == [call.get_span_context().span_id]
    assert span.context.trace_id != call.get_span_context().trace_id
    assert span.status.status_code == StatusCode.ERROR
    assert span.start_time < span.end_time
    assert "celery_guard.job" in (span.attributes or {})


@pytest.mark.parametrize("way", ["quote", "cause", "file", "row", "again", "result"])
def test_what_a_call_hides_is_in_no_span(way: str, seen: Seen, scratch: Path) -> None:
    """Nor in a metric: an error tells its class alone, and a call its task."""
    keep.delay("a", SECRET, [way])
    drain()
    assert traces("a")
    (span, *_) = seen.spans.get_finished_spans()
    assert SECRET not in span.to_json()
    assert SECRET not in str(seen.reader.get_metrics_data())


@pytest.mark.parametrize("headers", [{}, {"traceparent": "nonsense"}, {"traceparent": 5}])
def test_a_call_outside_all_spans_has_no_link(seen: Seen, headers: dict[str, object]) -> None:
    """Nor is the span around the attempt taken for it."""
    tasks.add.apply_async((1, 2), headers=headers)
    with seen.traces.get_tracer("site").start_as_current_span("worker"):
        drain()
    span = next(s for s in seen.spans.get_finished_spans() if s.name == f"process {ADD}")
    assert span.links == ()


def test_a_second_start_takes_the_place_of_the_first(seen: Seen) -> None:
    """Nothing is told twice."""
    other = Seen()
    telemetry.start(tracer_provider=other.traces, meter_provider=other.meters)
    tasks.add.delay(1, 2)
    drain()
    assert not seen.spans.get_finished_spans()
    assert len(other.spans.get_finished_spans()) == 1
    other.meters.shutdown()
    other.traces.shutdown()
