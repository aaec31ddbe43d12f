"""What a process remembers of the database for a while; no test begins with what another one left."""


def forget() -> None:
    """Switches, modes and measures are read anew; no place is held."""
    # Here, since conftest is read before Django is set up.
    from celery_guard.enqueue.admission import measured, places
    from celery_guard.enqueue.rollout import reading as modes
    from celery_guard.enqueue.steering import reading as switches

    for module in (switches, modes, measured):
        module.forget()
    places._held.set(None)
