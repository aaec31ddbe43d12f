"""From promise to broker: who sends, when, and what is sent again.

In: unsent jobs that are due, a wake after a commit, the evidence that a message was lost.
Out: messages in the broker, exactly as Celery would have published them, each marked on its job
*before* the broker is spoken to. One relay at a time leads a lane; any number stand by.

What can go wrong, and what then happens: the broker is away, slow or frozen (the rows are
taken back, nothing is used up, the lane's line waits with growing pauses and the other lanes go
on); one message can't be sent (it alone is put off or parked); the relay dies (another takes
its leads, and what it had marked is sent again on evidence); the database is away (the relay
reconnects); the wake channel is away (the relay polls).
"""
