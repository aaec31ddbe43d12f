"""The broker and what travels over it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from celery import Celery
from django.core import mail
from pytest_django import Settings

Find = Callable[..., dict[str, str]]
Site = Callable[..., Celery]


@pytest.mark.parametrize(
    ("setting", "value", "line"),
    [
        ("accept_content", ["json", "pickle"], "CELERY_ACCEPT_CONTENT = ['json']"),
        ("result_accept_content", ["yaml"], "CELERY_RESULT_ACCEPT_CONTENT = ['json']"),
        ("task_serializer", "pickle", "CELERY_TASK_SERIALIZER = 'json'"),
        ("result_serializer", "yaml", "CELERY_RESULT_SERIALIZER = 'json'"),
        ("event_serializer", "pickle", "CELERY_EVENT_SERIALIZER = 'json'"),
    ],
)
def test_formats_that_carry_code_are_errors(
    site: Site, find: Find, setting: str, value: object, line: str
) -> None:
    """Whoever can write to the broker or the outbox could run anything; the hint is the line."""
    site(**{setting: value})
    found = find()
    assert set(found) == {"E004"}
    assert line in found["E004"]


def test_a_lease_within_the_visibility_timeout_is_well(site: Site, find: Find) -> None:
    """The default hour is longer than the default lease."""
    site()
    assert find() == {}


@pytest.mark.parametrize(
    "configuration",
    [
        {"broker_transport_options": {"visibility_timeout": 1}},
        {"task_time_limit": 7200},
    ],
)
def test_a_broker_that_delivers_again_too_soon(
    site: Site, find: Find, configuration: dict[str, object]
) -> None:
    """On Redis an unacknowledged message comes again while its task still runs."""
    site(**configuration)
    assert set(find()) == {"W002"}


def test_rabbitmq_has_no_visibility_timeout(site: Site, find: Find) -> None:
    """There the connection decides."""
    site(broker_url="amqp://127.0.0.1:1//", task_time_limit=7200)
    assert find() == {}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://127.0.0.1:1/0", set()),
        ("sentinel://127.0.0.1:1", set()),
        ("amqps://127.0.0.1:1//", set()),
        ("memory://", {"W010"}),
        ("sqs://", {"W010"}),
    ],
)
def test_brokers_that_the_guard_is_not_made_for(
    site: Site, find: Find, monkeypatch: pytest.MonkeyPatch, url: str, said: set[str]
) -> None:
    """Memory above all: what the relay's process sends stays in it."""
    monkeypatch.delattr(mail, "outbox")
    site(broker_url=url, broker_write_url=url, broker_read_url=url)
    assert set(find()) == said


def test_waking_over_a_redis_that_is_not_there(settings: Settings, site: Site, find: Find) -> None:
    """RabbitMQ as broker, no Redis named, and yet wakes are to go over Redis."""
    url = "amqp://127.0.0.1:1//"
    site(broker_url=url, broker_write_url=url, broker_read_url=url)
    settings.CELERY_GUARD = {"relay": {"wake": "redis"}}
    assert set(find()) == {"W008"}
    settings.CELERY_GUARD = {"redis": "redis://127.0.0.1:1/0", "relay": {"wake": "redis"}}
    assert find() == {}


def test_waking_by_a_notify_that_the_database_has_not(
    settings: Settings, site: Site, find: Find, sqlite: str
) -> None:
    """Only PostgreSQL has it."""
    site()
    settings.CELERY_GUARD = {"using": sqlite, "relay": {"wake": "notify"}}
    settings.DEBUG = True
    assert set(find()) == {"W008"}
