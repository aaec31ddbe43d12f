"""See it: what each lane holds, how late it is, and what an operator can do about it.

In: the ledger, the workers' reports, what attempts count. Out: one snapshot row per lane, and
everything that reads it: metrics, the admin, ``guard_stats``, log lines. What can go wrong: the
database is away or slow (the snapshot grows stale and says so by its age; a scrape answers
within its limit with ``collector_up 0``); there is more to count than a bounded query may
(the count stops and says "at least"). Nothing here ever shows a zero that was not measured.
"""
