"""What a process remembers for a while; no test begins with what another one left."""

from typing import Any


def forget(app: Any) -> None:
    """Switches, modes, changed limits and measures are read anew, templates made anew; no place is held.

    What was counted and not told yet is not told.
    """
    # Here, since conftest is read before Django is set up.
    from celery_guard.enqueue.admission import measured, places, turns
    from celery_guard.enqueue.rollout import reading as modes
    from celery_guard.enqueue.steering import reading as switches
    from celery_guard.relay.limits import changes
    from celery_guard.run.retry_window import starts
    from celery_guard.watch.counters import series_tally, tally

    for module in (switches, modes, changes, measured, turns):
        module.forget()
    for counts in (tally, series_tally, starts):
        counts.forget()
    places._held.set(None)
    for task in app.tasks.values():
        if getattr(task, "guard_template", None) is not None:
            task.guard_template = None
