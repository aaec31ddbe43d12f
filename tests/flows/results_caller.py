"""``python -m tests.flows.results_caller``: asks for canvases, and reads their ends.

A process of its own, since the results' models belong to its settings alone. It prints what each
canvas came to, and the rows that were stored, for the plain and for the guarded tasks.
"""

import contextlib
import json
from collections import Counter
from typing import Any

import django
from celery.exceptions import TimeoutError as NeverEnded

CANVASES = (
    "group in a chain",
    "group at a chain's end",
    "chord of chords",
    "chord with a group as body",
    "chord of replaced",
    "replaced by a chord",
    "map in a chord",
    "error in a chain",
    "error in a chord's header",
    "error in a chord's body",
)
"""Those that count on the result backend in different ways."""


def main() -> None:
    """Ask for all, the guarded in one transaction, then wait for each.

    Plain tasks are sent at once: in a transaction a chord's counter, a row, may come too late.
    """
    django.setup()
    from django.db import transaction

    import tests.run.site  # noqa: F401 - the app with its tasks
    from tests.flows.canvas_tasks import GUARDED, PLAIN, canvases

    known, asked = dict(canvases()), {}
    for kind, tasks in (("plain", PLAIN), ("guarded", GUARDED)):
        with transaction.atomic() if kind == "guarded" else contextlib.nullcontext():
            asked[kind] = {name: known[name](tasks).apply_async() for name in CANVASES}
    ends = {
        kind: {name: _ended(result) for name, result in results.items()}
        for kind, results in asked.items()
    }
    print(json.dumps({"ends": ends, "rows": {kind: _rows(kind) for kind in asked}}))  # noqa: T201


def _ended(result: Any) -> Any:
    try:
        return result.get(timeout=60)
    except NeverEnded:
        return "never ended"
    except Exception as error:  # noqa: BLE001 - the error is the answer
        return f"raised {str(error).rpartition('boom')[1] or error!r}"


def _rows(kind: str) -> dict[str, int]:
    from django_celery_results.models import TaskResult

    rows = TaskResult.objects.filter(task_name__startswith=f"canvas.{kind}.")
    return Counter(
        f"{name.rpartition('.')[2]} {status}"
        for name, status in rows.values_list("task_name", "status")
    )


if __name__ == "__main__":
    main()
