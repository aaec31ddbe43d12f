"""The limits of dependencies in the admin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from celery_guard.models import LimitChange
from celery_guard.relay.limits import changes
from celery_guard.relay.limits.changing import set_limits
from tests.watch.admin.operators import Operator
from tests.watch.admin.pages import DASHBOARD, get, text

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]

LIMITS = "/admin/celery_guard/limitchange/"
ASKED = {"dependency": "provider", "rate": "2/s", "seconds": "3600", "reason": "they asked for it"}
SURE = {**ASKED, "sure": "yes"}


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    changes.forget()
    yield
    changes.forget()


@pytest.mark.bar
@pytest.mark.parametrize("others", [(), ("steer_jobs", "replay_job")], ids=str)
def test_without_the_permission_there_is_no_way_to_set_one(
    operator: Operator, others: tuple[str, ...]
) -> None:
    """No link, no button, and direct requests are refused; the right to steer is another."""
    client = operator(*others)
    one = set_limits(
        "default", dependency="provider", rate="1/s", reason="r", author="ana", seconds=600
    )
    assert "/set/" not in text(get(client, LIMITS))
    assert "/end/" not in text(get(client, f"{LIMITS}{one.pk}/change/"))
    assert client.get(f"{LIMITS}set/").status_code == 403
    assert client.post(f"{LIMITS}set/", SURE).status_code == 403
    assert client.post(f"{LIMITS}{one.pk}/end/").status_code == 403
    assert LimitChange.objects.get().ended_at is None


def test_limits_are_set_after_a_yes_and_kept_with_name_and_reason(operator: Operator) -> None:
    """The first post says what would hold instead of what; the second one does it."""
    client = operator("change_limits")
    assert "set/" in text(get(client, LIMITS))
    assert "rate 8/1s (burst 5)" in text(get(client, f"{LIMITS}set/"))
    asked = text(client.post(f"{LIMITS}set/", ASKED))
    assert "provider: rate 2/1s (burst 5)" in asked
    assert "Now: provider has rate 8/1s (burst 5), by the settings" in asked
    assert not LimitChange.objects.exists()
    assert client.post(f"{LIMITS}set/", SURE).status_code == 302
    one, entry = LimitChange.objects.get(), LogEntry.objects.get()
    assert (one.rate, one.reason) == ("2/s", "they asked for it")
    assert one.author == entry.user.get_username()
    assert entry.change_message == "provider: rate 2/s: they asked for it"
    page = text(get(client, DASHBOARD))
    assert "provider has rate 2/1s (burst 5)" in page
    assert "they asked for it" in page


def test_an_end_is_a_post_and_happens_once(operator: Operator) -> None:
    """And is in the admin's log as well."""
    client = operator("change_limits")
    one = set_limits(
        "default", dependency="provider", rate="1/s", reason="r", author="ana", seconds=600
    )
    assert client.get(f"{LIMITS}{one.pk}/end/").status_code == 405
    assert "/end/" in text(get(client, f"{LIMITS}{one.pk}/change/"))
    for _ in range(2):
        assert client.post(f"{LIMITS}{one.pk}/end/").status_code == 302
    one.refresh_from_db()
    assert one.ended_by == LogEntry.objects.get().user.get_username()
    assert client.post(f"{LIMITS}0/end/").status_code == 404


@pytest.mark.parametrize(
    "change",
    [
        {"reason": " "},
        {"dependency": "nowhere"},
        {"rate": "fast"},
        {"rate": ""},
        {"burst": "1, 2"},
        {"concurrency": "0"},
        {"seconds": "99999999"},
    ],
    ids=str,
)
def test_what_says_too_little_is_asked_for_again(
    operator: Operator, change: dict[str, str]
) -> None:
    """Nothing is set until everything fits, however sure somebody is."""
    answer = operator("change_limits").post(f"{LIMITS}set/", {**SURE, **change})
    assert answer.status_code == 200
    assert "errornote" in text(answer)
    assert not LimitChange.objects.exists()


def test_what_was_typed_goes_through_the_second_page_unread(operator: Operator) -> None:
    """A reason is words, never markup."""
    page = operator("change_limits").post(f"{LIMITS}set/", {**ASKED, "reason": '"><b>x'})
    assert "<b>x" not in text(page)


def test_a_viewer_sees_what_was_set(viewer: Client) -> None:
    """By whom, why, until when; over ones too."""
    set_limits("default", dependency="desk", concurrency=7, reason="r", author="ana", seconds=600)
    page = text(get(viewer, LIMITS))
    assert "concurrency 7" in page
    assert "ana" in page
