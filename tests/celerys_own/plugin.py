"""What pytest loads beside Celery's tests: it keeps their outcomes, and guards their tasks."""

import json
import os
from pathlib import Path

import pytest

PLAIN, OUTCOMES = "CELERYS_OWN_PLAIN", "CELERYS_OWN_OUTCOMES"
_ended: dict[str, str] = {}


@pytest.fixture(scope="session")
def celery_parameters() -> dict[str, object]:
    """Celery's fixture: how its test app is made. Two calls of a task are two jobs."""
    if os.environ.get(PLAIN):
        return {}
    import django

    django.setup()
    from celery_guard import UNKEYED, GuardedTask

    return {"task_cls": type("Guarded", (GuardedTask,), {"abstract": True, "key": UNKEYED})}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the worst outcome of a test's set-up, body and end."""
    if report.when == "call" or report.outcome != "passed":
        name = report.nodeid.partition("::")[2]
        if _ended.get(name) != "failed":
            _ended[name] = report.outcome


def pytest_sessionfinish() -> None:
    """Write the outcomes where whoever started this looks for them."""
    Path(os.environ[OUTCOMES]).write_text(json.dumps(_ended))
