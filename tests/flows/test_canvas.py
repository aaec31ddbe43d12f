"""Celery's canvas through the outbox, beside Celery's own: the same results, the same errors."""

from pathlib import Path
from typing import Any

import pytest
from celery.exceptions import TimeoutError as NeverEnded
from django.db import transaction

from tests.flows.canvas_tasks import ERRORS, GUARDED, PLAIN, VALUES
from tests.flows.staff import hire
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop.witness import traces

pytestmark = [
    # Celery's own calls, with the newest redis-py.
    pytest.mark.filterwarnings("ignore:Call to deprecated"),
    pytest.mark.filterwarnings("ignore:task_allow_error_cb_on_chord_header"),
    pytest.mark.django_db(transaction=True),
]


def ended(result: Any) -> Any:
    """What a canvas came to."""
    try:
        return result.get(timeout=30)
    except NeverEnded:
        return "never ended"
    except Exception as error:  # noqa: BLE001 - the error is the answer
        return f"raised {str(error).rpartition('boom')[1] or error!r}"


def asked(canvases: dict[str, Any], tasks: Any) -> dict[str, Any]:
    """The canvases of these tasks, asked for in one transaction."""
    with transaction.atomic():
        return {name: make(tasks).apply_async() for name, make in canvases.items()}


@pytest.mark.timeout(240)
def test_results_are_celerys_own(processes: Processes, scratch: Path) -> None:
    """A difference in any canvas of the table fails."""
    hire(processes, concurrency=3)
    plain, guarded = asked(VALUES, PLAIN), asked(VALUES, GUARDED)
    expected = {name: ended(result) for name, result in plain.items()}
    assert {name: ended(result) for name, result in guarded.items()} == expected
    # What Celery itself can't do shows nothing.
    assert {name: end for name, end in expected.items() if isinstance(end, str)} == {}


@pytest.mark.timeout(240)
def test_errors_are_celerys_own(processes: Processes, scratch: Path) -> None:
    """Each canvas ends with the error of its task, and calls its errback as often as Celery does."""
    hire(processes, concurrency=3)
    noted: dict[str, dict[str, Any]] = {"plain": {}, "guarded": {}}
    for name, make in ERRORS.items():
        for kind, tasks in (("plain", PLAIN), ("guarded", GUARDED)):
            before = len(traces(kind))
            with transaction.atomic():
                canvas = make(tasks)
                canvas.on_error(tasks.note.s())
                result = canvas.apply_async()
            told = ended(result)
            wait_for(lambda k=kind, b=before: len(traces(k)) > b, what=f"the errback of {name}")
            # As many as a later canvas of the same worker shows to be all of them.
            assert ended(tasks.add.delay(1, 1)) == 2
            noted[kind][name] = (told, len(traces(kind)) - before)
    assert noted["guarded"] == noted["plain"]
