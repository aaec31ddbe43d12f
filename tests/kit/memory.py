"""What a process remembers for a while; no test begins with what another one left."""

from typing import Any


def forget(app: Any) -> None:
    """Switches, modes, changed limits and measures are read anew, templates made anew; no place is held."""
    # Here, since conftest is read before Django is set up.
    from celery_guard.enqueue.admission import measured, places, turns
    from celery_guard.enqueue.rollout import reading as modes
    from celery_guard.enqueue.steering import reading as switches
    from celery_guard.relay.limits import changes

    for module in (switches, modes, changes, measured, turns):
        module.forget()
    places._held.set(None)
    for task in app.tasks.values():
        if getattr(task, "guard_template", None) is not None:
            task.guard_template = None
