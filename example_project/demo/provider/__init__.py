"""A payment provider as its own HTTP process, with its own memory and its own bad days.

In: ``POST /charges`` with an ``Idempotency-Key``; ``POST /faults`` with the bad days to come.
Out: receipts, and ``GET /charges`` and ``GET /counts`` for whoever wants to check.
A charge is applied exactly once per key (:mod:`demo.provider.ledger`); what the caller gets to
hear of it is another matter (:mod:`demo.provider.faults`).
"""
