"""Whether there is room for more work: asked before the transaction, answered by a place in it.

In: a task, its arguments, a tenant. Out: an :class:`~.admit.Admission` and, where a limit is set,
a committed reservation that the enqueue consumes. What can go wrong: a limit is reached, which is
:class:`~celery_guard.errors.AdmissionRefused` with the seconds after which to ask again; a process
dies with a place in hand, which comes back when its reservation ends.
"""
