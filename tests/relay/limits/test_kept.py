"""The connection that is kept for the limits: whose answer is whose, and what becomes of a broken one."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from celery_guard.relay.limits.answers import Verdict
from celery_guard.relay.limits.store import limits
from celery_guard.run.heartbeat import heart
from tests.kit.wait import wait_for
from tests.relay.limits.stores import Desk, rules, store


@pytest.fixture
def desk(redis_client: redis.Redis) -> Iterator[Desk]:
    """A dependency that bears one call at a time, and whose end nobody waits for any more."""
    redis_client.flushdb()
    one = Desk(store("redis"), rules(concurrency=1))
    for job in ("first", "second"):
        assert one.granted(job)
        one.finish(f"{job}/1")
    yield one
    redis_client.flushdb()


def test_an_end_comes_before_the_next_wish(desk: Desk) -> None:
    """Though its answer is not waited for: else a worker would be refused by its own last job."""
    for n in range(50):
        assert desk.granted(f"j{n}")
        desk.finish(f"j{n}/1")
    assert desk.read().permits == 0


def test_each_wish_gets_its_own_answer(desk: Desk) -> None:
    """The answer that is still owed for an end is no answer to a wish."""
    assert desk.granted("a")
    assert not desk.granted("b")
    desk.finish("a/1")
    assert desk.granted("b")
    assert not desk.granted("c")


def test_an_end_whose_script_is_forgotten_is_told_again(
    desk: Desk, redis_client: redis.Redis
) -> None:
    """Else the permit would be held to the end of its lease."""
    assert desk.granted("a")
    redis_client.script_flush()
    desk.finish("a/1")
    assert desk.granted("b")


def test_an_idle_process_tells_it_again(redis_client: redis.Redis) -> None:
    """Its heart looks, since no next job does: else the permit would be held to the end of its lease."""
    redis_client.flushdb()
    one = Desk(limits(), rules(concurrency=1))
    for job in ("first", "second", "a"):
        assert one.granted(job)
        if job == "a":
            redis_client.script_flush()
        one.finish(f"{job}/1")
    others = Desk(store("redis"), one.rules)
    heart().beat_once()
    assert others.granted("b")


def test_what_another_thread_has_in_hand_is_left_to_it(desk: Desk) -> None:
    """Two would read one another's answers."""
    known: Any = desk.limits
    assert desk.granted("a")
    desk.finish("a/1")
    with known._kept.in_hand():
        known.settle()
        assert known._kept._owed
    known.settle()
    assert not known._kept._owed


def test_the_first_end_of_a_connection_is_waited_for(redis_client: redis.Redis) -> None:
    """A server that has just begun knows no script, and a worker may have no other job for long."""
    redis_client.flushdb()
    redis_client.script_flush()
    one = Desk(store("redis"), rules(concurrency=1))
    assert one.granted("a")
    one.finish("a/1")
    assert Desk(store("redis"), one.rules).granted("b")


def test_a_connection_that_holds_an_answer_of_nobodys_is_not_used(desk: Desk) -> None:
    """What has arrived unasked would be taken for the answer to the next wish."""
    kept = desk.limits._kept  # type: ignore[attr-defined]
    assert desk.granted("a")
    spoilt = kept._connection
    spoilt.send_command("PING")
    wait_for(spoilt.can_read, what="the stray answer")
    assert not desk.granted("b"), "PONG is no grant"
    desk.finish("a/1")
    assert desk.granted("b")


@pytest.mark.parametrize("owed", [True, False])
def test_a_closed_connection_is_opened_anew(
    owed: bool, desk: Desk, redis_client: redis.Redis
) -> None:
    """A Redis that was restarted, or closes what is idle, refuses nobody for that."""
    assert desk.granted("a")
    desk.finish("a/1", Verdict.FINE if owed else Verdict.UNCLEAR)
    redis_client.client_kill_filter(_type="normal", skipme=True)
    assert desk.granted("b")
    desk.finish("b/1")
    assert desk.granted("c")


def test_threads_do_not_wait_for_one_another(desk: Desk) -> None:
    """While one has the connection in hand, another asks over one of the pool's."""
    own = desk.limits
    found: list[bool] = []
    with own._kept.in_hand() as kept:  # type: ignore[attr-defined]
        assert kept is not None
        thread = threading.Thread(target=lambda: found.append(desk.granted("a")))
        thread.start()
        thread.join(20)
    assert found == [True]
