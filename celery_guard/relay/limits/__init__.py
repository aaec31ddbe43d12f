"""What other systems can bear: rates, concurrency and breakers of the named dependencies.

In: a wish to call a dependency, and later how the call went. Out: a permit, or a refusal that says
when to come back and keeps that place. All of it is decided in one atomic step on the clock of
the store: in Redis (Lua) where there is one, else in the ledger's database. ``decide.py`` and
``lua/`` are the same rules twice, held together by one set of tests.

What can go wrong: the store does not answer (:class:`~celery_guard.errors.LimitsAway`: nobody
calls, jobs wait a few seconds and cost no failure); a holder dies (its permit and its probe end
with their leases); a place is not used (it is lost, which errs on the careful side).
"""
