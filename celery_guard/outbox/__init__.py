"""The promise: a finished Celery message, stored in the transaction of the work it belongs to.

In: what Celery is about to publish. Out: an ``OutboxMessage`` row beside its ``Job`` row, and
one note per transaction that the relay is to be woken after the commit. What can go wrong: the
message has no faithful encoding, is too large, or the open transaction is on another database;
each is a typed error at the call, and nothing is written.
"""
