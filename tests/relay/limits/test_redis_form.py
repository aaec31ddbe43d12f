"""Whose limits are whose, in a Redis that several share."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from django.core import mail

from celery_guard.relay.limits.redis_form import redis_limits
from tests.relay.limits.stores import Desk, rules

_names = itertools.count()


@pytest.fixture
def apps() -> Iterator[list[Celery]]:
    """Two sites with one Redis."""
    made = [Celery(f"site-{os.getpid()}-{next(_names)}", set_as_current=False) for _ in range(2)]
    yield made
    for app in made:
        app.close()


def desk(app: Celery, same: Any) -> Desk:
    """The dependency that both sites know by one name."""
    return Desk(redis_limits(os.environ["REDIS_URL"], app), same)


@pytest.fixture
def no_prefix(settings: Any) -> Any:
    """The sites are told apart by what they are."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "prefix": ""}
    return settings


def test_sites_that_share_a_redis_share_no_limit(apps: list[Celery], no_prefix: Any) -> None:
    """Told apart by the name of their app."""
    same = rules(rate="1/h", burst=1)
    first, second = (desk(app, same) for app in apps)
    assert first.granted("a")
    assert not first.granted("b")
    assert second.granted("c")


def test_the_setting_brings_them_together(apps: list[Celery], no_prefix: Any) -> None:
    """Two apps of one site may share what a provider grants to it."""
    no_prefix.CELERY_GUARD = {**no_prefix.CELERY_GUARD, "prefix": apps[0].main}
    same = rules(rate="1/h", burst=1)
    first, second = (desk(app, same) for app in apps)
    assert first.granted("a")
    assert not second.granted("b")


def test_tests_take_nothing_from_the_live_site(
    apps: list[Celery], no_prefix: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same app, same Redis: what the tests use up is still there for the site."""
    same = rules(rate="1/h", burst=1)
    assert desk(apps[0], same).granted("a")
    monkeypatch.delattr(mail, "outbox")
    assert desk(apps[0], same).granted("b")
    assert not desk(apps[0], same).granted("c")
