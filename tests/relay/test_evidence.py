"""Evidence of loss: what counts, and what never does."""

from datetime import UTC, datetime, timedelta

from celery_guard.relay.evidence import Evidence, Flight, judge

START = datetime(2026, 1, 1, tzinfo=UTC)
GRACE = timedelta(seconds=30)


def at(seconds):
    return START + timedelta(seconds=seconds)


def sweep(old, flight, seconds, *, ready=0, free=False):
    return judge(old, flight, now=at(seconds), grace=GRACE, ready=ready, free=free)


def test_a_later_job_claimed_a_grace_ago_proves_what_was_sent_before_it():
    """The proof is the sending time of a job that was seen running a grace ago, not newer."""
    flight = Flight(waiting=2, oldest=at(0), running=1, newest_claimed=at(10))
    seen = sweep(Evidence(), flight, 20)
    assert (seen.probe_sent_at, seen.proven_sent_at) == (at(10), None)
    assert sweep(seen, flight, 49).proven_sent_at is None
    assert sweep(seen, flight, 50).proven_sent_at == at(10)


def test_a_newer_probe_does_not_push_the_proof_away():
    """A busy lane claims ever newer jobs; the first one seen still becomes the proof."""
    seen = sweep(Evidence(), Flight(waiting=1, running=1, newest_claimed=at(10)), 20)
    for second in range(25, 50, 5):
        seen = sweep(seen, Flight(waiting=1, running=1, newest_claimed=at(second)), second)
        assert seen.probe_sent_at == at(10)
    assert sweep(
        seen, Flight(waiting=1, running=1, newest_claimed=at(49)), 50
    ).proven_sent_at == at(10)


def test_an_empty_queue_beside_free_workers_is_evidence_from_its_first_sight():
    """`idle_since` starts when both hold and ends when either stops."""
    flight = Flight(waiting=1, oldest=at(0))
    seen = sweep(Evidence(), flight, 10, ready=0, free=True)
    assert seen.idle_since == at(10)
    assert sweep(seen, flight, 20, ready=0, free=True).idle_since == at(10)
    assert sweep(seen, flight, 20, ready=0, free=False).idle_since is None
    assert sweep(seen, flight, 20, ready=1, free=True).idle_since is None


def test_a_long_queue_behind_slow_or_absent_workers_is_no_evidence():
    """EV-07: while the queue still holds every unclaimed message, time proves nothing."""
    seen = Evidence()
    flight = Flight(waiting=1000, oldest=at(0), running=2, newest_claimed=at(0))
    for second in range(0, 290, 5):
        seen = sweep(seen, flight, second, ready=1000, free=False)
        assert (seen.proven_sent_at, seen.idle_since) == (None, None)


def test_messages_overtaken_by_priority_are_left_alone_while_the_queue_holds_them():
    """A later job of higher priority may be claimed first; only for so long is that excused."""
    flight = Flight(waiting=3, oldest=at(0), running=1, newest_claimed=at(20))
    seen = Evidence()
    for second in range(25, 300, 5):
        seen = sweep(seen, flight, second, ready=3)
        assert seen.proven_sent_at is None
    seen = sweep(sweep(seen, flight, 305, ready=3), flight, 340, ready=3)
    assert seen.proven_sent_at == at(20)


def test_a_broker_that_does_not_answer_gives_no_evidence():
    """Without an answer nothing is known, and what was known is not acted upon."""
    old = Evidence(proven_sent_at=at(1), idle_since=at(1), probe_sent_at=at(2), probe_at=at(3))
    seen = sweep(old, Flight(waiting=1), 100, ready=None)
    assert (seen.proven_sent_at, seen.idle_since) == (None, None)


def test_nothing_unclaimed_means_nothing_lost():
    """Evidence ends with the last unclaimed job, so that a later one starts without it."""
    old = Evidence(proven_sent_at=at(1), idle_since=at(1))
    seen = sweep(old, Flight(running=1, newest_claimed=at(5)), 100)
    assert (seen.proven_sent_at, seen.idle_since) == (None, None)
