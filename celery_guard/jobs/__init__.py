"""The ledger: one narrow row per job, and every move a row can make.

In: a new job from the outbox room, a move from whoever is allowed to make it. Out: whether
the move happened. A move is a conditional UPDATE; nobody reads, decides and saves.
What can go wrong: the move's guard no longer holds (it returns False or 0 rows and changes
nothing), or the database is away (its error passes through untouched).
"""
