"""The ledger in Django's admin: look at everything, change nothing but by its moves.

In: an operator's request. Out: lists that stay fast at millions of rows (no count, no
``DISTINCT``, pages by key), one page per job with its attempts, the lanes as measured, and two
moves with permissions of their own. What can go wrong: a filter finds its rows too slowly (the
list says so instead of holding the page up); a job has moved on before the operator's click
(the answer says how many did move). Arguments, bodies and results are never shown.
"""
