"""``python -m tests.enqueue.traced [sentry]``: a process in which tracing libraries are active.

With ``sentry`` only that, which patches Celery and uses none of its signals.

Asks for work in a transaction and prints the stored headers, the finished spans, the envelopes
that Sentry would send, and how often each of Celery's publish signals was heard.
"""

import json
import sys
from collections import Counter
from typing import Any

import django
import sentry_sdk
from celery import signals
from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sentry_sdk.integrations.celery import CeleryIntegration
from sentry_sdk.transport import Transport

SIGNALS = ("before_task_publish", "after_task_publish")


class Kept(Transport):
    """Keeps what Sentry would send."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.kinds: list[str | None] = []

    def capture_envelope(self, envelope: Any) -> None:
        """Keep the kind of each item."""
        self.kinds += [item.type for item in envelope.items]


def main() -> None:
    """Trace, ask, print."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    alone = "sentry" in sys.argv
    if not alone:
        CeleryInstrumentor().instrument(tracer_provider=provider)  # type: ignore[no-untyped-call]
    transport = Kept()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=transport,
        traces_sample_rate=1.0,
        integrations=[CeleryIntegration()],
        default_integrations=False,
    )
    django.setup()
    heard: Counter[str] = Counter()
    for name in () if alone else SIGNALS:
        getattr(signals, name).connect(_counting(heard, name), weak=False)
    headers, traces = _ask()
    print(  # noqa: T201
        json.dumps(
            {
                "headers": headers,
                "trace": traces,
                "spans": [span.name for span in exporter.get_finished_spans()],
                "span_traces": [
                    f"{s.context.trace_id:032x}" for s in exporter.get_finished_spans()
                ],
                "sentry": transport.kinds,
                "heard": heard,
            }
        )
    )


def _counting(heard: "Counter[str]", name: str) -> Any:
    def hear(sender: str, **_: Any) -> None:
        heard[f"{name} {sender.rpartition('.')[2]}"] += 1

    return hear


def _ask() -> tuple[dict[str, Any], dict[str, str]]:
    from celery import group
    from django.db import transaction

    from tests.enqueue.rows import headers_of, jobs
    from tests.enqueue.tasks import high, keyed, unkeyed

    tracer = trace.get_tracer("site")
    with (
        tracer.start_as_current_span("request") as span,
        sentry_sdk.start_transaction(name="request") as sentry,
        transaction.atomic(),
    ):
        keyed.delay("a")
        high.apply_async(("a",), countdown=5, headers={"mine": "kept"})
        group(unkeyed.s(1)).delay()
        ids = {"otel": f"{span.get_span_context().trace_id:032x}", "sentry": sentry.trace_id}
    return {job.task.rpartition(".")[2]: headers_of(job) for job in jobs()}, ids


if __name__ == "__main__":
    main()
