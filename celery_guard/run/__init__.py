"""In the worker: claim, body, outcome, answer.

In: a message that Celery's tracer has decoded. Out: the job's end, written in the transaction
of the body's own writes, and then what Celery is to be told. A worker acts only on a job that
it could claim; whatever it learns too late (its lease is over, its commit got no answer) it
reads from the row before it says anything.

What can go wrong: the process dies (the lease ends and the job is rescued), the database goes
away (the claim waits in place, an end that could not be written is left to the rescue), the
attempt is fenced off (its writes are rolled back). None of them is told to Celery as a failure.
"""
