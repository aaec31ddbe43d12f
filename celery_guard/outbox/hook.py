"""One hook per transaction: after COMMIT, say which lanes have new work.

The hook is found by looking in ``connection.run_on_commit``, not by a flag of our own: Django
prunes that list when a savepoint rolls back, so a flag would go on claiming a hook that is gone.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import connections, transaction

from celery_guard.faults import fault_point

Listener = Callable[[set[str], str], None]
_listeners: list[Listener] = []


def on_committed(listener: Listener) -> Listener:
    """Call ``listener(lanes, using)`` after each commit that holds new jobs."""
    if listener not in _listeners:
        _listeners.append(listener)
    return listener


def note(using: str, *lanes: str) -> None:
    """Remember that the open transaction on ``using`` made work for ``lanes``."""
    connection = connections[using]
    if not connection.in_atomic_block and not connection.get_autocommit():
        return  # Transactions by hand have no hooks; the relay's poll finds the rows.
    for _, hook, *_ in connection.run_on_commit:
        if isinstance(noted := getattr(hook, "guard_lanes", None), set):
            noted.update(lanes)
            return
    # Robust: an error here must not stop the site's own hooks, and the promise is already kept.
    transaction.on_commit(_hook(using, set(lanes)), using=using, robust=True)


def _hook(using: str, lanes: set[str]) -> Callable[[], None]:
    def tell_of_new_jobs() -> None:
        fault_point("outbox.committed")
        for listener in _listeners:
            listener(lanes, using)

    tell_of_new_jobs.guard_lanes = lanes  # type: ignore[attr-defined]
    return tell_of_new_jobs
