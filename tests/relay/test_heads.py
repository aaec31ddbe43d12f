"""How many messages wait on Redis, and when the next ones say that they were sent."""

from __future__ import annotations

import json

import pytest
import redis

from celery_guard.relay.publish.depth import Queued, queued_in, ready_in
from celery_guard.relay.publish.heads import sent_at
from tests.kit.brokers import celery_conf
from tests.kit.site import app


def message(**headers: object) -> str:
    return json.dumps({"body": "", "headers": headers, "properties": {}})


def test_the_oldest_head_of_all_priorities_counts(redis_client: redis.Redis) -> None:
    """Messages are pushed at the left, so the next is at the right; every priority has its list."""
    redis_client.lpush("q", message(sent_at=200.0), message(sent_at=100.0))
    redis_client.lpush("q\x06\x169", message(sent_at=150.0), message(sent_at=90.0))
    assert queued_in(app, ["q", "none"], 5) == {
        "q": Queued(ready=4, oldest=150.0),
        "none": Queued(ready=0),
    }
    assert redis_client.llen("q") == 2


def test_the_prefix_of_a_site_is_heeded(redis_client: redis.Redis) -> None:
    """kombu's own client leaves the keys of some commands as they are, and an empty queue is a sign
    of loss to the relay."""
    redis_client.lpush("site:q", message(sent_at=100.0))
    with celery_conf(broker_transport_options={"global_keyprefix": "site:"}):
        assert queued_in(app, ["q"], 5) == {"q": Queued(ready=1, oldest=100.0)}
        assert ready_in(app, ["q"], 5) == {"q": 1}


@pytest.mark.parametrize(
    ("head", "when"),
    [
        (json.dumps({"headers": {}, "properties": {"timestamp": 5}}), 5.0),
        (message(published_at="7.5"), 7.5),
        (message(sent_at="2001-09-09T01:46:40+00:00"), 1e9),
        (message(sent_at="2001-09-09T01:46:40"), 1e9),
        (message(task="shop.pay"), None),
        (message(sent_at=1e12), None),
        (message(sent_at="nan"), None),
        (message(sent_at=[1]), None),
        (message(sent_at="yesterday"), None),
        ('{"headers": null, "properties": null}', None),
        ("[]", None),
        ("not a message", None),
        (b"\xff\xfe", None),
        (None, None),
    ],
)
def test_a_time_is_believed_where_it_is_one(head: str | bytes | None, when: float | None) -> None:
    """Anything may lie in a queue; what is no time says nothing."""
    assert sent_at(head) == when
