"""Rollout: how much of the guard a task's calls get, and how that is changed while the site runs.

In: a task's stage from the settings or, set at run time with a reason, an author and an end, from
the database. Out: for each call the mode that counts, the same wherever and whenever it is asked
for one key. Whoever publishes, runs or answers a call asks here; a job carries its mode with it.
"""
