"""Steering: what an operator holds back, refuses or demotes, in one table.

In: a switch with a scope (lane, task, tenant), a reason, an author and an end. Out: what is in
force now, as every process reads it at most once a second. Whoever enqueues, releases or claims
asks here; with no switch that is the whole price.
"""
