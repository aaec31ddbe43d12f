"""Publishing on real brokers: what arrives, what comes back, what a failure means."""

import json
import os
import uuid
from decimal import Decimal

import pytest
import redis
from kombu import Connection, Exchange, Queue

from celery_guard.relay.broker_app import load_app
from celery_guard.relay.publish import publisher_for
from celery_guard.relay.publish.connection import Broker
from celery_guard.relay.publish.deliver import deliver
from tests.factories import envelope
from tests.kit.brokers import on_broker
from tests.kit.wait import wait_for
from tests.relay.ledger import depth, job_of, take_all
from tests.relay.publishing import BODY, ids, publish, sending

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def queue() -> str:
    """A queue of this test alone."""
    return f"{os.environ['GUARD_TEST_PREFIX']}{uuid.uuid4().hex[:8]}"


def direct(url: str, queue: str, headers: dict, **properties: object):
    """The same message, published by kombu itself, as it lies on the broker."""
    with Connection(url) as connection:
        connection.Producer(auto_declare=False).publish(
            BODY.encode(),
            exchange="",
            routing_key=queue,
            content_type="application/json",
            content_encoding="utf-8",
            headers=headers,
            delivery_mode=2,
            declare=[Queue(queue)],
            **properties,
        )
        wait_for(lambda: depth(url, queue), what="the direct publish")
    return take_all(url, queue)


def without_tag(message):
    body, headers, properties = message
    return body, headers, {n: v for n, v in properties.items() if n != "delivery_tag"}


@pytest.mark.parametrize(
    "properties", [{}, {"priority": 5}, {"priority": 9, "reply_to": "someone"}]
)
def test_what_arrives_equals_a_direct_publish_but_for_one_header(broker, queue, properties):
    """Body bytes, headers with dates and decimals, properties: all as kombu itself sends them."""
    headers = {"task": "t", "id": "x", "when": uuid.UUID(int=1).hex, "price": "1.10", "n": 2**40}
    text = envelope("x", "t", queue, headers=headers, properties={"delivery_mode": 2, **properties})
    job = sending(queue, envelope=text)
    assert ids(publish(job).sent) == [job.id]
    [(body, arrived, arrived_properties)] = take_all(broker, queue)
    assert arrived.pop("guard_job") == f"{job.id}/{job.public_id.hex}"
    [reference] = direct(broker, queue, headers, **properties)
    # The header stands in the AMQP properties a second time.
    arrived_properties.get("application_headers", {}).pop("guard_job", None)
    assert without_tag((body, arrived, arrived_properties)) == without_tag(reference)


def test_tagged_values_in_headers_survive(broker, queue):
    """What kombu's JSON marks (decimals, dates, UUIDs) arrives as kombu would send it."""
    text = envelope("x", "t", queue, headers={"task": "t", "price": Decimal("1.10")})
    publish(sending(queue, envelope=text))
    [(_, headers, _)] = take_all(broker, queue)
    [(_, reference, _)] = direct(broker, queue, {"task": "t", "price": Decimal("1.10")})
    assert headers["price"] == reference["price"]


def test_time_is_taken_out_of_the_message(broker, queue):
    """EV-10: eta, expires and expiration stand on the job; a worker must not act on copies."""
    headers = {
        "task": "t",
        "id": "x",
        "eta": "2030-01-01T00:00:00",
        "expires": "2030-01-01T00:00:00",
    }
    text = envelope("x", "t", queue, headers=headers, properties={"expiration": "5000"})
    publish(sending(queue, envelope=text))
    [(_, arrived, properties)] = take_all(broker, queue)
    assert (arrived["eta"], arrived["expires"]) == (None, None)
    assert "expiration" not in properties


def test_a_plain_message_gets_no_header(broker, queue):
    """The message of an unguarded task is byte for byte what Celery would have sent."""
    publish(sending(queue, plain=True))
    [(_, headers, _)] = take_all(broker, queue)
    assert "guard_job" not in headers


def test_consumers_get_the_messages_in_the_order_released(broker, queue):
    """One push or one burst of publishes keeps the order."""
    jobs = [sending(queue) for _ in range(40)]
    assert ids(publish(*jobs).sent) == ids(jobs)
    assert [job_of(headers) for _, headers, _ in take_all(broker, queue)] == ids(jobs)


def test_a_poison_message_is_told_apart_and_its_neighbours_go(broker, queue):
    """OB-11, OB-12: a message that has no form ends alone, at the head of a batch too."""
    poison = sending(queue, envelope="{not json")
    gone = sending(queue, envelope=None, body=b"")
    good = [sending(queue) for _ in range(3)]
    delivery = publish(poison, gone, *good)
    assert [job.id for job, _ in delivery.poison] == [poison.id, gone.id]
    assert ids(delivery.sent) == ids(good)
    assert (delivery.unsent, delivery.outage) == ((), "")


def test_a_broker_that_refuses_connections_is_an_outage(queue):
    """PB-01: every message counts as unsent, none as poison, and it takes no time."""
    for url in ("redis://127.0.0.1:1/0", "amqp://guest:guest@127.0.0.1:1//"):
        with on_broker(url):
            jobs = [sending(queue) for _ in range(3)]
            delivery = publish(*jobs)
            assert ids(delivery.unsent) == ids(jobs)
            assert delivery.outage
            assert (delivery.sent, delivery.poison, delivery.refused) == ((), (), ())


def test_a_queue_declared_with_other_arguments_still_gets_its_messages(queue):
    """A declaration the broker refuses is no reason to park jobs: the queue is there."""
    url = os.environ["AMQP_URL"] or pytest.skip("RabbitMQ is not here")
    with Connection(url) as connection, on_broker(url):
        Queue(queue, durable=True, queue_arguments={"x-max-priority": 7}).bind(connection).declare()
        job = sending(queue)
        assert ids(publish(job).sent) == [job.id]
        assert len(take_all(url, queue)) == 1
        connection.channel().queue_delete(queue)


def test_an_unroutable_message_is_refused_not_sent(broker, queue):
    """A confirm alone is not enough: what no queue takes is reported, and its neighbours go."""
    text = envelope("x", "t", queue, exchange="", routing_key=queue)
    lost = sending(
        queue,
        envelope=json.dumps(
            {**json.loads(text), "exchange": "amq.topic", "routing_key": "nobody", "declare": []}
        ),
    )
    good = sending(queue)
    delivery = publish(lost, good)
    assert [job.id for job, _ in delivery.refused] == [lost.id]
    assert ids(delivery.sent) == [good.id]


def test_messages_to_an_exchange_reach_its_queues_even_after_a_wipe(broker, queue):
    """Bindings that a wiped or emptied broker forgot are made again before the next message."""
    exchange = Exchange(f"{queue}-topic", type="topic")
    app = load_app()
    app.amqp.queues.add(Queue(queue, exchange, routing_key="orders.#"))
    changes = {"exchange": exchange.name, "routing_key": "orders.new", "declare": [queue]}
    try:
        for _ in range(2):
            job = sending(queue, envelope=envelope("x", "t", queue, **changes))
            assert ids(publish(job).sent) == [job.id]
            assert [job_of(h) for _, h, _ in take_all(broker, queue)] == [job.id]
            _wipe(broker, queue, exchange.name)
    finally:
        app.amqp.queues.pop(queue)


def _wipe(url: str, queue: str, exchange: str) -> None:
    with Connection(url) as connection:
        channel = connection.default_channel
        if url.startswith("redis"):
            channel.client.flushdb()
        else:
            channel.queue_delete(queue)
            channel.exchange_delete(exchange)


def test_a_deleted_queue_is_made_again_on_the_same_connection():
    """RabbitMQ: the message comes back as unroutable, the queue is declared, the message goes."""
    url = os.environ["AMQP_URL"] or pytest.skip("RabbitMQ is not here")
    queue = f"{os.environ['GUARD_TEST_PREFIX']}{uuid.uuid4().hex[:8]}"
    with on_broker(url), Connection(url) as connection:
        publisher = publisher_for(load_app(), 2.0)
        try:
            for _ in range(2):
                job = sending(queue)
                assert ids(deliver(publisher, [job], 5.0).sent) == [job.id]
                assert depth(url, queue) == 1
                connection.channel().queue_delete(queue)
        finally:
            publisher.close()


def test_a_full_queue_refuses_and_is_tried_later():
    """RabbitMQ: a nack is an answer about one message, neither poison nor an outage."""
    url = os.environ["AMQP_URL"] or pytest.skip("RabbitMQ is not here")
    queue = f"{os.environ['GUARD_TEST_PREFIX']}{uuid.uuid4().hex[:8]}"
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    with Connection(url) as connection, on_broker(url):
        Queue(queue, durable=True, queue_arguments=full).bind(connection).declare()
        first, second = sending(queue), sending(queue)
        delivery = publish(first, second)
        assert ids(delivery.sent) == [first.id]
        assert [job.id for job, _ in delivery.refused] == [second.id]
        connection.channel().queue_delete(queue)


def test_redis_keys_get_the_sites_prefix(redis_client, queue, monkeypatch):
    """A site that shares a Redis by `global_keyprefix` finds its messages where it looks."""
    prefix = {"global_keyprefix": "site:"}
    monkeypatch.setitem(load_app().conf.changes, "broker_transport_options", prefix)
    publish(sending(queue))
    assert redis_client.llen(f"site:{queue}") == 1
    assert redis_client.llen(queue) == 0
    assert redis_client.exists(f"site:_kombu.binding.{queue}")


def test_a_list_key_that_is_no_list_is_an_outage_not_poison(redis_client, queue):
    """The probe writes where the message would go: what is wrong there is not the job's fault."""
    redis_client.set(queue, "not a list")
    delivery = publish(sending(queue))
    assert (delivery.poison, len(delivery.unsent)) == ((), 1)
    assert "WRONGTYPE" in delivery.outage


def test_a_full_redis_is_an_outage_and_the_probe_leaves_nothing(own_redis, queue):
    """A server that answers pings but takes no writes: nothing is parked, all goes out later."""
    with redis.Redis.from_url(own_redis.url) as client, on_broker(own_redis.url):
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        job = sending(queue)
        assert ids(publish(job).unsent) == [job.id]
        client.config_set("maxmemory", 0)
        assert ids(publish(job).sent) == [job.id]
        assert client.llen(queue) == 1


def test_a_frozen_redis_costs_no_more_than_its_time_outs(own_redis, queue):
    """A server that accepts and never answers: the batch is given up, and not condemned."""
    with on_broker(own_redis.url):
        own_redis.freeze()
        try:
            delivery = publish(sending(queue), sending(queue), timeout=0.3, budget=2.0)
        finally:
            own_redis.thaw()
    assert len(delivery.unsent) == 2
    assert delivery.outage


def test_a_restarted_redis_under_an_open_connection_loses_nothing(own_redis, queue):
    """A connection that broke since the last batch is noticed, probed, and opened anew."""
    with on_broker(own_redis.url):
        publisher = publisher_for(load_app(), 2.0)
        try:
            assert len(deliver(publisher, [sending(queue)], 5.0).sent) == 1
            own_redis.kill()
            own_redis.start()
            jobs = [sending(queue) for _ in range(3)]
            assert ids(deliver(publisher, jobs, 5.0).sent) == ids(jobs)
        finally:
            publisher.close()


def test_queues_are_declared_as_kombu_declares_them(redis_client, queue):
    """The bindings that workers and monitors look for exist, and come back after a wipe."""
    broker = Broker(load_app(), 2.0)
    try:
        for again in (False, True):
            broker.declare(queue, again=again)
            assert redis_client.scard(f"_kombu.binding.{queue}") == 1
            redis_client.flushdb()
    finally:
        broker.drop()


def test_a_rabbitmq_under_memory_alarm_is_an_outage_and_recovers(own_server, queue):
    """PB-03: publishers are blocked without an error; the batch is given up, nothing is parked."""
    rabbit = own_server("amqp")
    with on_broker(rabbit.url):
        assert len(publish(sending(queue)).sent) == 1
        rabbit.tell("rabbitmqctl", "set_vm_memory_high_watermark", "absolute", "1")
        jobs = [sending(queue) for _ in range(3)]
        delivery = publish(*jobs, timeout=0.5, budget=1.0)
        assert ids(delivery.unsent) == ids(jobs)
        assert delivery.outage
        rabbit.tell("rabbitmqctl", "set_vm_memory_high_watermark", "0.8")
        sent = wait_for(lambda: ids(publish(*jobs).sent), what="the alarm to be over")
        assert sent == ids(jobs)


@pytest.mark.parametrize("prefix", ["", "site:"])
def test_a_probe_leaves_the_queue_as_it_found_it(redis_client, queue, prefix, monkeypatch):
    """It takes back what it pushed and nothing else, under a key prefix too."""
    options = {"global_keyprefix": prefix} if prefix else {}
    monkeypatch.setitem(load_app().conf.changes, "broker_transport_options", options)
    redis_client.lpush(f"{prefix}{queue}", "first", "second")
    publisher = publisher_for(load_app(), 2.0)
    try:
        publisher.probe(publisher.encode(sending(queue)))
    finally:
        publisher.close()
    assert redis_client.lrange(f"{prefix}{queue}", 0, -1) == [b"second", b"first"]
    assert redis_client.keys(f"*{queue}") == [f"{prefix}{queue}".encode()]
