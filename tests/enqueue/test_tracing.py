"""Tracing libraries see one publish, at the call, and what they add travels with the message."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.kit.processes import environment

pytestmark = [pytest.mark.bar, pytest.mark.django_db(transaction=True)]

TASKS = ("keyed", "high", "unkeyed")


@pytest.fixture
def traced() -> dict[str, Any]:
    """What a traced process saw and stored; a process of its own, since tracing patches Celery."""
    return run_traced()


def run_traced(*options: str) -> dict[str, Any]:
    """What such a process says."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.enqueue.traced", *options],
        env={**environment(), "DJANGO_SETTINGS_MODULE": "tests.project.settings"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def test_what_tracing_adds_is_stored(traced: dict[str, Any]) -> None:
    """OpenTelemetry's and Sentry's headers name the request's trace; other headers stay."""
    for task in TASKS:
        headers = traced["headers"][task]
        assert headers["traceparent"].split("-")[1] == traced["trace"]["otel"]
        assert headers["sentry-trace"].split("-")[0] == traced["trace"]["sentry"]
        assert traced["trace"]["sentry"] in headers["baggage"]
        assert headers["headers"]["sentry-trace"] == headers["sentry-trace"]
    assert traced["headers"]["high"]["mine"] == "kept"
    # Every message is a span of its own.
    assert len({traced["headers"][task]["traceparent"] for task in TASKS}) == len(TASKS)


def test_signals_are_heard_once(traced: dict[str, Any]) -> None:
    """At the call, in the request; never again when the message goes out."""
    expected = {f"{when}_task_publish {task}": 1 for when in ("before", "after") for task in TASKS}
    assert traced["heard"] == expected


def test_publish_spans_are_ended(traced: dict[str, Any]) -> None:
    """The span that opens before the publish is closed after it, in the request's trace."""
    published = [name for name in traced["spans"] if name.startswith("apply_async/")]
    assert len(published) == len(TASKS)
    assert set(traced["span_traces"]) == {traced["trace"]["otel"]}
    assert traced["sentry"] == ["transaction"]


def test_sentry_alone_is_heard_too() -> None:
    """It patches Celery and listens to no signal, so the short way must see the patch."""
    traced = run_traced("sentry")
    for task in TASKS:
        headers = traced["headers"][task]
        assert headers["sentry-trace"].split("-")[0] == traced["trace"]["sentry"]
        assert "traceparent" not in headers
