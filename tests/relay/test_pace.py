"""When a lane is looked at again, and how large its batches get."""

import math

from celery_guard.relay.pace import BYTES_AHEAD, FIRST_BATCH, SOON, Pace


def test_a_full_batch_is_followed_at_once_by_a_larger_one():
    """A backlog is drained without a pause, in batches that double up to the setting."""
    pace = Pace(500, 0.25)
    sizes = []
    for _ in range(6):
        sizes.append(pace.batch)
        pace.took(pace.batch, 1000, now=10.0)
        assert pace.look_at == 10.0
    assert sizes == [FIRST_BATCH, 100, 200, 400, 500, 500]


def test_large_payloads_make_small_batches():
    """Memory is bounded by bytes, not by rows."""
    pace = Pace(500, 0.25)
    pace.took(50, 50 * 256 * 1024, now=0.0)
    assert pace.batch * 256 * 1024 <= BYTES_AHEAD
    pace.took(pace.batch, 100, now=0.0)
    assert pace.batch > BYTES_AHEAD // (256 * 1024)


def test_an_empty_look_waits_for_a_wake_or_for_what_is_due_next():
    """Nothing due: no more looks by itself; the next job's due time sets the next one."""
    pace = Pace(500, 0.25)
    pace.took(0, 0, now=0.0)
    assert (pace.look_at, pace.ask_at) == (math.inf, 0.0)
    pace.due_in(None, now=0.0)
    assert pace.next_at == math.inf
    pace.due_in(3.0, now=1.0)
    assert pace.look_at == 4.0


def test_a_small_batch_is_followed_by_a_question_only():
    """Most often it was all there was, and a look would be in the way of the worker's claim."""
    pace = Pace(500, 0.25)
    pace.took(1, 100, now=0.0)
    assert (pace.look_at, pace.ask_at) == (math.inf, SOON)
    pace.due_in(None, now=SOON)
    assert pace.next_at == math.inf
    pace.took(1, 100, now=1.0)
    pace.due_in(-1.0, now=1.0 + SOON)
    assert pace.look_at == 1.0 + SOON


def test_a_held_back_lane_is_looked_at_ever_more_rarely():
    """Jobs are due and the window is full: looks start close together and end at the poll."""
    pace = Pace(500, 0.25)
    pauses = []
    for _ in range(8):
        pace.took(0, 0, now=0.0)
        pace.due_in(-1.0, now=0.0)
        pauses.append(pace.look_at)
    assert pauses[0] == SOON
    assert pauses == sorted(pauses)
    assert pauses[-1] == 0.25


def test_a_job_found_due_by_a_poll_is_looked_at_now():
    """A wake that got lost costs one poll, no more."""
    pace = Pace(500, 0.25)
    pace.took(0, 0, now=0.0)
    pace.due_in(None, now=0.0)
    pace.due_in(-0.1, now=7.0)
    assert pace.look_at == 7.0
