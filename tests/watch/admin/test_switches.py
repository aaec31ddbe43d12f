"""Steering in the admin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from celery_guard.enqueue.steering import reading
from celery_guard.enqueue.steering.turning import turn_on
from celery_guard.models import Switch
from tests.watch.admin.operators import Operator
from tests.watch.admin.pages import DASHBOARD, get, text

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]

SWITCHES = "/admin/celery_guard/switch/"
ASKED = {"lane": "low", "action": "hold", "seconds": "3600", "reason": "the provider is down"}


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    reading.forget()
    yield
    reading.forget()


def switch() -> Switch:
    """A hold that is in force."""
    return turn_on("default", action="hold", lane="low", reason="r", author="ana", seconds=600)


@pytest.mark.bar
def test_without_the_permission_there_is_no_way_to_steer(viewer: Client) -> None:
    """No link, no button, and direct requests are refused."""
    one = switch()
    assert "pause/" not in text(get(viewer, SWITCHES))
    assert "/end/" not in text(get(viewer, f"{SWITCHES}{one.pk}/change/"))
    assert viewer.post(f"{SWITCHES}pause/", ASKED).status_code == 403
    assert viewer.post(f"{SWITCHES}{one.pk}/end/").status_code == 403
    assert Switch.objects.get().ended_at is None


def test_a_pause_is_kept_with_name_and_reason(operator: Operator) -> None:
    """On the switch and in the admin's log; the dashboard shows it."""
    client = operator("steer_jobs")
    assert "pause/" in text(get(client, SWITCHES))
    assert client.get(f"{SWITCHES}pause/").status_code == 200
    assert client.post(f"{SWITCHES}pause/", ASKED).status_code == 302
    one, entry = Switch.objects.get(), LogEntry.objects.get()
    assert (one.lane, one.reason) == ("low", "the provider is down")
    assert one.author == entry.user.get_username()
    assert "hold lane low" in entry.change_message
    page = text(get(client, DASHBOARD))
    assert "lane low" in page
    assert "the provider is down" in page


@pytest.mark.parametrize(
    "change",
    [
        {"reason": " "},
        {"lane": ""},
        {"everything": "on"},
        {"lane": "lwo"},
        {"task": "nowhere"},
        {"seconds": "99999999"},
    ],
    ids=str,
)
def test_a_pause_that_says_too_little_is_asked_for_again(
    operator: Operator, change: dict[str, str]
) -> None:
    """Nothing is turned on until everything is there and names something."""
    answer = operator("steer_jobs").post(f"{SWITCHES}pause/", {**ASKED, **change})
    assert answer.status_code == 200
    assert "errornote" in text(answer)
    assert not Switch.objects.exists()


def test_an_end_needs_a_post_and_happens_once(operator: Operator) -> None:
    """A link that is followed ends nothing; a second click finds it over."""
    one, client = switch(), operator("steer_jobs")
    assert "/end/" in text(get(client, f"{SWITCHES}{one.pk}/change/"))
    assert client.get(f"{SWITCHES}{one.pk}/end/").status_code == 405
    assert client.post(f"{SWITCHES}{one.pk}/end/").status_code == 302
    one.refresh_from_db()
    assert one.ended_by == LogEntry.objects.get().user.get_username()
    assert client.post(f"{SWITCHES}{one.pk}/end/").status_code == 302
    assert LogEntry.objects.count() == 1
    assert client.post(f"{SWITCHES}0/end/").status_code == 404
    assert "/end/" not in text(get(client, f"{SWITCHES}{one.pk}/change/"))


def test_a_demotion_can_be_asked_for(operator: Operator) -> None:
    """Like the other actions; of the lowest lane it is refused in words."""
    client = operator("steer_jobs")
    asked = {**ASKED, "action": "demote"}
    response = client.post(f"{SWITCHES}pause/", asked)
    assert (response.status_code, Switch.objects.count()) == (200, 0)
    assert "there is no lane below" in text(response)
    assert client.post(f"{SWITCHES}pause/", {**asked, "lane": "high"}).status_code == 302
    assert (Switch.objects.get().action, Switch.objects.get().lane) == ("demote", "high")
