"""The modes of tasks in the admin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from celery_guard.enqueue.rollout import reading
from celery_guard.models import TaskMode
from tests.enqueue.rollout.stages import set_to
from tests.project.shop.tasks import mark, plain
from tests.watch.admin.operators import Operator
from tests.watch.admin.pages import get, text

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]

MODES = "/admin/celery_guard/taskmode/"
ASKED = {"task": mark.name, "stage": "canary:10", "seconds": "86400", "reason": "first steps"}


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    reading.forget()
    yield
    reading.forget()


def test_without_the_permission_there_is_no_way_to_set_one(viewer: Client) -> None:
    """No link, no button, and direct requests are refused."""
    one = set_to(mark, "off")
    assert "/set/" not in text(get(viewer, MODES))
    assert "/end/" not in text(get(viewer, f"{MODES}{one.pk}/change/"))
    assert viewer.get(f"{MODES}set/").status_code == 403
    assert viewer.post(f"{MODES}set/", ASKED).status_code == 403
    assert viewer.post(f"{MODES}{one.pk}/end/").status_code == 403
    assert TaskMode.objects.get().ended_at is None


def test_a_mode_is_kept_with_name_and_reason(operator: Operator) -> None:
    """On the row and in the admin's log; an end needs a post and happens once."""
    client = operator("steer_jobs")
    assert "set/" in text(get(client, MODES))
    assert client.get(f"{MODES}set/").status_code == 200
    assert client.post(f"{MODES}set/", ASKED).status_code == 302
    one, entry = TaskMode.objects.get(), LogEntry.objects.get()
    assert (str(one.stage), one.reason) == ("canary:10", "first steps")
    assert one.author == entry.user.get_username()
    assert "canary:10: first steps" in entry.change_message
    assert client.get(f"{MODES}{one.pk}/end/").status_code == 405
    assert "/end/" in text(get(client, f"{MODES}{one.pk}/change/"))
    for _ in range(2):
        assert client.post(f"{MODES}{one.pk}/end/").status_code == 302
    one.refresh_from_db()
    assert one.ended_by == one.author
    assert LogEntry.objects.count() == 2
    assert client.post(f"{MODES}0/end/").status_code == 404


@pytest.mark.parametrize(
    "change",
    [
        {"reason": " "},
        {"task": "nowhere"},
        {"task": plain.name},
        {"task": "tests.enqueue.tasks.elsewhere"},
        {"stage": "canary"},
        {"stage": "compare"},
        {"seconds": "99999999"},
    ],
    ids=str,
)
def test_what_says_too_little_is_asked_for_again(
    operator: Operator, change: dict[str, str]
) -> None:
    """Nothing is set until everything fits."""
    import tests.enqueue.tasks  # noqa: F401 - a task whose ledger is elsewhere

    answer = operator("steer_jobs").post(f"{MODES}set/", {**ASKED, **change})
    assert answer.status_code == 200
    assert "errornote" in text(answer)
    assert not TaskMode.objects.exists()
