"""Someone asks for work.

In: every publishing form of Celery, ``enqueue_many`` and ``batch``. Out: a job and its message
in the caller's transaction, and a handle. What can go wrong is told at the call, by a typed
error, with nothing written: a key that can't be made or is taken for other work, arguments that
don't fit or have no faithful encoding, a transaction on another database.
"""
