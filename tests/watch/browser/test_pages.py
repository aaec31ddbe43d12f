"""The pages that people look at, in a browser: in light and dark, on a phone, for everybody."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from celery_guard.conf import guard_settings
from celery_guard.jobs.states import State
from celery_guard.models import Job, LaneSample, LaneSnapshot
from celery_guard.watch.snapshot import take_snapshot
from tests.factories import make_job
from tests.kit.wait import wait_for
from tests.watch.admin.test_dashboard import failed, in_broker, unanswered
from tests.watch.browser.found import CHROMIUM, DRIVER
from tests.watch.rows import aged, ended, running

if TYPE_CHECKING:
    from tests.watch.browser.window import Window

if CHROMIUM is None or DRIVER is None:
    pytest.skip("no browser here (Debian: chromium, chromium-driver)", allow_module_level=True)

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LOOKS = ("light", "dark", "phone")


@pytest.fixture
def busy_site() -> None:
    """A late lane, one that works, one that rests; dead letters, an open effect; an hour of curves."""
    for _ in range(3):
        aged("high", seconds=300)
    running("medium")
    for _ in range(2):
        failed()
    unanswered()
    take_snapshot("default")
    high, low = (guard_settings().lane(lane).queue for lane in ("high", "low"))
    in_broker(**{high: (12_345, 720.0), low: (0, None), "mails-of-another-program": (5, 7200.0)})
    now = timezone.now().replace(second=0, microsecond=0)
    LaneSample.objects.all().delete()
    LaneSample.objects.bulk_create(
        LaneSample(
            lane=lane,
            minute=now - timedelta(minutes=minute),
            age=(minute * 37) % 90,
            ready=(minute * 53) % 40,
            arrivals_per_second=(minute * 7) % 5,
            completions_per_second=(minute * 5) % 5,
        )
        for lane in ("high", "medium", "low")
        for minute in range(60)
    )
    LaneSnapshot.objects.update(taken_at=timezone.now() + timedelta(minutes=1))


def staff() -> Client:
    user = User.objects.create_superuser("operator", password="x")
    client = Client()
    client.force_login(user)
    return client


def owner() -> Client:
    client = Client()
    client.force_login(User.objects.create_user("ada"))
    return client


def check(window: Window, look: str, name: str, within: str) -> None:
    """Nothing the browser complains of, nothing wider than the screen, no barrier, dark when asked."""
    assert window.complaints() == []
    assert window.overflow() <= 0
    assert window.barriers(within) == []
    red, green, blue = map(int, window.background().strip("rgba()").split(",")[:3])
    assert (red + green + blue < 3 * 128) == (look == "dark")
    window.picture(f"{name}-{look}")


@pytest.mark.usefixtures("busy_site")
@pytest.mark.parametrize("look", LOOKS)
def test_the_dashboard_can_be_used_by_everybody(window: Window, address: str, look: str) -> None:
    """Under a policy without anything inline."""
    window.log_in(address, staff())
    window.open(f"{address}/admin/celery_guard/", look)
    check(window, look, "dashboard", "#content")


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("state", ["waiting", "running", "succeeded", "failed"])
def test_the_status_page_can_be_used_by_everybody(
    window: Window, address: str, state: str, look: str
) -> None:
    """In each kind of state that a job can be looked at."""
    mine = {"tenant": "ada", "key": "invoice:7"}
    if state == "waiting":
        job = make_job("high", **mine)
    elif state == "running":
        job = running(**mine, done=30, total=100)
    else:
        reason = "done" if state == "succeeded" else "permanent"
        job = ended(state=State(state), reason=reason, **mine)
    window.log_in(address, owner())
    window.open(f"{address}/guard/{job.public_id}/", look)
    check(window, look, f"status-{state}", "body")


def test_the_status_page_keeps_itself_current(window: Window, address: str) -> None:
    """Without being loaded anew: the word changes in place, and so does what stands below it."""
    job = running(tenant="ada", key="invoice:7")
    window.log_in(address, owner())
    window.open(f"{address}/guard/{job.public_id}/", "light")
    word = window.driver.find_element("css selector", ".guard-word")
    before = word.text
    now = timezone.now()
    Job.objects.filter(pk=job.pk).update(
        state=State.SUCCEEDED,
        owner=None,
        lease_until=None,
        sent_at=None,
        due_at=None,
        finished_at=now,
    )
    wait_for(lambda: word.text != before, timeout=60, what="the word to change")
    assert "/results/invoice:7" in window.driver.page_source
    assert not window.driver.find_elements("css selector", "progress")
    assert window.complaints() == []
