"""Bulk replays in the admin."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from celery_guard.models import Job, Replay
from celery_guard.settle.replay import starting
from celery_guard.settle.replay.choosing import Wanted
from celery_guard.settle.replay.stepping import replay_a_little
from tests.settle.test_replay import BOOM, TASK, dead
from tests.watch.admin.operators import Operator
from tests.watch.admin.pages import DASHBOARD, get, text

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]

REPLAYS = "/admin/celery_guard/replay/"
START = f"{REPLAYS}start/"
ASKED = {"task": TASK, "mark": BOOM, "pace": "5/s", "reason": "the provider is back"}


def under_way() -> Replay:
    """A replay that can be cancelled."""
    return starting.start("default", Wanted(task=TASK), pace="1/s", reason="r", author="ana")


@pytest.mark.bar
def test_without_the_permission_there_is_no_way_to_replay(viewer: Client) -> None:
    """No link, no button, and direct requests are refused."""
    dead()
    one = under_way()
    assert "start/" not in text(get(viewer, REPLAYS))
    assert "replay/start/" not in text(get(viewer, DASHBOARD))
    assert "/cancel/" not in text(get(viewer, f"{REPLAYS}{one.pk}/change/"))
    assert viewer.get(START).status_code == 403
    assert viewer.post(START, ASKED).status_code == 403
    assert viewer.post(f"{REPLAYS}{one.pk}/cancel/").status_code == 403
    assert Replay.objects.get().state == "choosing"


def test_a_group_leads_to_what_its_replay_would_do(operator: Operator) -> None:
    """From the dashboard, with the group filled in; looking changes nothing."""
    jobs = [dead() for _ in range(2)]
    client = operator("replay_job")
    link = f"{START}?task={TASK}&amp;mark={BOOM}"
    assert link in text(get(client, DASHBOARD))
    page = text(client.get(START, {"task": TASK, "mark": BOOM}))
    assert "2 dead letters would run again." in page
    assert f"{TASK}: 2" in page
    assert f"job/{jobs[-1].pk}/change/" in page
    assert f'value="{BOOM}"' in page
    assert not Replay.objects.exists()


def test_a_replay_is_started_with_name_and_reason(operator: Operator) -> None:
    """Both are kept with it and in the admin's log; the duty does it."""
    job = dead()
    client = operator("replay_job")
    assert "replay/start/" in text(get(client, REPLAYS))
    assert client.post(START, ASKED).status_code == 302
    replay, entry = Replay.objects.get(), LogEntry.objects.get()
    assert (replay.task, replay.mark, replay.pace) == (TASK, BOOM, 5.0)
    assert replay.author == entry.user.get_username()
    assert "the provider is back" in entry.change_message
    assert "/cancel/" in text(get(client, f"{REPLAYS}{replay.pk}/change/"))
    replay_a_little("default")
    assert Job.objects.get(pk=job.pk).state == "waiting"
    assert "/cancel/" not in text(get(client, f"{REPLAYS}{replay.pk}/change/"))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"reason": " "}, "This field is required"),
        ({"pace": "fast"}, "must be like"),
        ({"task": "", "mark": ""}, "name a task"),
        ({"lane": "lwo"}, "did you mean low"),
    ],
)
def test_a_wrong_wish_is_asked_for_again(
    operator: Operator, changes: dict[str, str], told: str
) -> None:
    """Nothing is written."""
    answer = operator("replay_job").post(START, {**ASKED, **changes})
    assert told in text(answer)
    assert not Replay.objects.exists()


def test_a_cancel_is_kept_with_its_name(operator: Operator) -> None:
    """By POST only; a second click changes nothing."""
    one, client = under_way(), operator("replay_job")
    where = f"{REPLAYS}{one.pk}/cancel/"
    assert client.get(where).status_code == 405
    assert client.post(where).status_code == 302
    one.refresh_from_db()
    entry = LogEntry.objects.get()
    assert (one.state, one.ended_by) == ("cancelled", entry.user.get_username())
    assert client.post(where).status_code == 302
    assert LogEntry.objects.count() == 1
    assert client.post(f"{REPLAYS}0/cancel/").status_code == 404
