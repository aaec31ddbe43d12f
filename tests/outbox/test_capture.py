"""The capture keeps what Celery would have sent, and touches nothing outside the process."""

import datetime as dt
import decimal
import json
import os
import uuid
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery import Celery
from kombu import Exchange, Queue

from celery_guard import install
from celery_guard.errors import BadSchedule, NotSerializable
from celery_guard.outbox.capture import Captured, collecting, instant
from celery_guard.outbox.envelope import Envelope
from tests.enqueue.rows import celery_settings, counts
from tests.enqueue.tasks import app, keyed, plain, silent, unkeyed
from tests.enqueue.watch import Watch

pytestmark = pytest.mark.django_db


def caught(ask: Any) -> Captured:
    """The one message that ``ask`` would send."""
    with collecting() as kept:
        ask()
    (one,) = kept
    return one


def test_nothing_is_written_and_nothing_sent() -> None:
    """Guarded and plain tasks alike; the broker is not even looked at."""
    with Watch() as watch, collecting() as kept:
        keyed.delay("a")
        plain.apply_async((1,), countdown=5)
        app().send_task("somewhere.else", (2,))
    assert [one.task for one in kept] == [keyed.name, plain.name, "somewhere.else"]
    assert counts() == (0, 0)
    assert urlsplit(os.environ["REDIS_URL"]).port not in watch.ports()


def test_what_a_message_says_of_itself() -> None:
    """Id, queue, times and who waits."""
    later = dt.datetime(2031, 1, 1, tzinfo=dt.UTC)
    one = caught(
        lambda: silent.apply_async(("a",), task_id="mine", eta=later, expires=later, queue="q")
    )
    assert (one.task_id, one.queue, one.eta, one.expires) == ("mine", "q", later, later)
    assert (one.ignore_result, one.canvas, one.awaited) == (True, False, False)


@pytest.mark.parametrize(
    ("ask", "canvas", "awaited"),
    [
        (lambda: silent.delay("a"), False, False),
        (lambda: unkeyed.delay("a"), False, True),
        (lambda: silent.apply_async(("a",), link=unkeyed.s()), True, True),
        (lambda: silent.apply_async(("a",), link_error=unkeyed.s()), True, True),
        (lambda: silent.apply_async(("a",), chain=[unkeyed.s()]), True, True),
        (lambda: silent.apply_async(("a",), chord=unkeyed.s()), True, True),
        (lambda: silent.apply_async(("a",), group_id="g"), True, True),
    ],
)
def test_who_waits(ask: Any, canvas: bool, awaited: bool) -> None:
    """A kept result is waited for; so is every member and step of a canvas."""
    one = caught(ask)
    assert (one.canvas, one.awaited) == (canvas, awaited)


def test_without_a_result_backend_nobody_waits_for_a_result() -> None:
    """Then only a canvas makes a job awaited."""
    without = Celery("without", broker="memory://", set_as_current=False)
    install(without)
    assert not caught(lambda: without.send_task("some.task")).awaited


def test_the_sent_event_is_not_a_message() -> None:
    """``task_send_sent_event`` makes Celery publish twice through one producer."""
    with celery_settings(app(), task_send_sent_event=True):
        one = caught(lambda: unkeyed.apply_async((1,), countdown=1))
    assert (one.envelope.exchange, json.loads(one.body)[0]) == ("", [1])
    # Celery keeps an event that fails for later, without a word.
    assert not app().amqp._event_dispatcher._outbound_buffer


@pytest.mark.parametrize(
    ("mode", "stored"), [(None, 2), (1, 1), (2, 2), ("transient", 1), ("persistent", 2)]
)
def test_delivery_modes_have_two_spellings(mode: Any, stored: int) -> None:
    """A number or a word; stored as the number that travels."""
    one = caught(lambda: unkeyed.apply_async((1,), delivery_mode=mode))
    assert one.envelope.properties["delivery_mode"] == stored


def test_a_named_exchange_brings_its_queues() -> None:
    """Celery declares none of them; the relay, a process of its own, has to know them."""
    queue = Queue("capture-q", Exchange("capture-x", type="topic"), routing_key="a.#")
    app().amqp.queues.add(queue)
    try:
        one = caught(lambda: unkeyed.apply_async((1,), exchange="capture-x", routing_key="a.b"))
    finally:
        del app().amqp.queues["capture-q"]
    envelope = one.envelope
    assert (envelope.exchange, envelope.routing_key) == ("capture-x", "a.b")
    assert "capture-q" in envelope.declare


def test_what_has_no_encoding_is_told() -> None:
    """A body or a header; the task's own faults are told before, by the enqueueing side."""
    with collecting(), pytest.raises(NotSerializable, match="arguments"):
        app().send_task("some.task", (object(),))
    with collecting(), pytest.raises(NotSerializable, match="headers"):
        app().send_task("some.task", headers={"x": object()})


def test_an_envelope_comes_back_as_it_was() -> None:
    """Dates, decimals, UUIDs and bytes in headers keep their types."""
    values = {
        "at": dt.datetime(2031, 1, 1, tzinfo=dt.UTC),
        "price": decimal.Decimal("1.10"),
        "id": uuid.UUID(int=7),
        "raw": b"\x00\xff",
        "text": "ä \ud800 \x00",
    }
    envelope = Envelope(
        content_type="a",
        content_encoding="b",
        exchange="c",
        routing_key="d",
        headers=values,
        properties={"priority": None, "expiration": "5"},
        declare=("q", "r"),
    )
    text = envelope.encode()
    assert Envelope.decode(text) == envelope
    assert text.isascii()
    assert json.loads(text)["routing_key"] == "d"


@pytest.mark.parametrize("nothing", [None, ""])
def test_no_time_is_none(nothing: str | None) -> None:
    """A header that is not set."""
    assert instant(nothing) is None


@pytest.mark.parametrize(
    "text", ["soon", 5, dt.date(2031, 1, 1), dt.datetime(3000, 1, 1, tzinfo=dt.UTC)]
)
def test_what_is_no_time_is_told(text: Any) -> None:
    """Also what lies beyond any calendar."""
    with pytest.raises(BadSchedule):
        instant(text)
