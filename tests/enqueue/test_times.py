"""Times with a zone on a site that has none: without ``USE_TZ`` the rows still hold UTC."""

import datetime as dt
from typing import Any

import pytest

from celery_guard import batch
from tests.enqueue.rows import jobs
from tests.enqueue.tasks import keyed

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]

WHEN = dt.datetime(2050, 1, 1, 9, tzinfo=dt.timezone(dt.timedelta(hours=9)))
LATER = WHEN + dt.timedelta(hours=1)


@pytest.mark.parametrize("at_once", [False, True])
def test_without_use_tz_times_are_kept(settings: Any, at_once: bool) -> None:
    """Due times and expiries, one by one and in bulk."""
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Tokyo"
    if at_once:
        with batch():
            keyed.apply_async(("a",), eta=WHEN, expires=LATER)
    else:
        keyed.apply_async(("a",), eta=WHEN, expires=LATER)
    settings.USE_TZ = True
    assert [(job.due_at, job.expires_at) for job in jobs()] == [(WHEN, LATER)]
