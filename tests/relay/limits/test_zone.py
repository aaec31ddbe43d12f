"""Limits in the database go by one clock on a site without time zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from celery_guard import RetryAfter, dependency
from celery_guard.relay.limits import store
from celery_guard.relay.limits.rules import MICRO, rules_of
from tests.run.marks import on_database

pytestmark = [*on_database, pytest.mark.mariadb]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_date_pauses_until_then(settings: Any, zone: str) -> None:
    """Also where Django reads the database's times in the site's zone: neither longer nor not at all."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "limits": "database"}
    settings.USE_TZ, settings.TIME_ZONE = False, zone
    with pytest.raises(RetryAfter), dependency("mail"):
        raise RetryAfter(datetime.now(UTC) + timedelta(seconds=90))
    (found,) = store.read([rules_of("mail")])
    assert 30 * MICRO < found.paused <= 91 * MICRO


def test_a_permit_outlasts_a_change_of_zone(settings: Any) -> None:
    """As an hour that is skipped or comes twice does, a zone moves the wall clock, and no lease."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "limits": "database"}
    settings.USE_TZ, settings.TIME_ZONE = False, "America/New_York"
    with dependency("desk"), override_settings(TIME_ZONE="Asia/Tokyo"):
        (found,) = store.read([rules_of("desk")])
    assert found.permits == 1
