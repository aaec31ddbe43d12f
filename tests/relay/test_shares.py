"""The arithmetic of fair shares."""

from hypothesis import given
from hypothesis import strategies as st

from celery_guard.relay.shares import Claimant, share

claimants = st.dictionaries(
    st.text(min_size=1, max_size=3),
    st.builds(
        Claimant,
        held=st.integers(0, 50),
        weight=st.floats(0.1, 10),
        most=st.none() | st.integers(1, 40),
        cost=st.floats(0.01, 100),
        mark=st.none() | st.floats(-100, 100),
    ),
    max_size=12,
)


def test_whoever_is_alone_gets_everything():
    """A share is not a quota: nobody else waits."""
    assert share(10, {"a": Claimant(held=40)}) == {"a": 10}


def test_a_newcomer_is_next():
    """Whoever holds least goes first, whatever the others brought."""
    assert share(1, {"a": Claimant(held=40), "b": Claimant(held=0)}) == {"b": 1}


def test_what_is_held_already_counts():
    """Places go where they make the holdings equal."""
    given = share(6, {"a": Claimant(held=4), "b": Claimant(held=0), "c": Claimant(held=2)})
    assert given == {"b": 4, "c": 2}


def test_weights_are_parts():
    """Three times the weight is three times the places."""
    given = share(40, {"a": Claimant(held=0, weight=3), "b": Claimant(held=0)})
    assert given == {"a": 30, "b": 10}


def test_a_job_counts_by_what_it_costs():
    """One of ten seconds for ten of one."""
    given = share(22, {"slow": Claimant(held=0, cost=10), "fast": Claimant(held=0, cost=1)})
    assert given == {"slow": 2, "fast": 20}


def test_a_costly_job_is_next_all_the_same():
    """Its own cost puts nobody back: a lone long job does not wait for thousands of short ones."""
    given = share(1, {"slow": Claimant(held=0, cost=600), "fast": Claimant(held=1, cost=0.1)})
    assert given == {"slow": 1}


def test_what_it_has_had_counts_where_it_is_known():
    """Its mark, and not what it happens to hold now."""
    given = share(4, {"a": Claimant(held=0, mark=10), "b": Claimant(held=3, mark=8)})
    assert given == {"a": 1, "b": 3}


def test_a_full_tenant_holds_up_nobody():
    """Over its bound it is passed over, and its places go to the others."""
    given = share(10, {"a": Claimant(held=3, most=3), "b": Claimant(held=9, most=11)})
    assert given == {"b": 2}


@given(st.integers(-5, 60), claimants)
def test_shares_are_exact_and_level(room: int, waiting: dict[str, Claimant]):
    """No more than the room, none left while somebody may have it, no bound passed, all level."""
    given = share(room, waiting)
    total = sum(given.values())
    assert total <= max(0, room)
    open_ones = [n for n, c in waiting.items() if not c.is_full(given.get(n, 0))]
    assert total == max(0, room) or not open_ones
    for name, more in given.items():
        assert more > 0
        assert not waiting[name].is_full(more - 1)
        # Its last place brought it no higher than anybody's next one would have.
        assert all(
            waiting[name].level(more - 1) <= waiting[other].level(given.get(other, 0)) + 1e-6
            for other in open_ones
        )
