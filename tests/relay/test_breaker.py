"""Pauses: they grow, they are capped, they differ, and success ends them."""

from celery_guard.relay.breaker import Breaker, jittered


def test_pauses_grow_with_failures_in_a_row_up_to_the_cap():
    """OB-14, OB-15: counted over batches of any size, bounded for ever."""
    breaker = Breaker(first=1.0, longest=8.0)
    pauses = [breaker.failed() for _ in range(40)]
    for number, most in enumerate((1, 2, 4, 8, 8)):
        assert most / 2 <= pauses[number] <= most
    assert all(4 <= pause <= 8 for pause in pauses[4:])


def test_a_success_forgets_all_failures():
    """After one delivery the next trouble starts with the shortest pause."""
    breaker = Breaker(first=1.0, longest=100.0)
    for _ in range(5):
        breaker.failed()
    breaker.worked()
    assert breaker.failed() <= 1.0


def test_no_number_of_failures_overflows():
    """OB-15: 2 ** 1000 is never computed."""
    assert 2.5 <= jittered(1000, 1.0, 5.0) <= 5.0


def test_pauses_are_spread():
    """Many relays don't come back to a recovering broker at one moment."""
    assert len({jittered(3, 1.0, 60.0) for _ in range(20)}) > 10
