"""A person's word on an effect without an answer."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from celery_guard.jobs.states import State
from celery_guard.models import Effect
from tests.watch.admin.operators import Operator
from tests.watch.admin.pages import DASHBOARD, EFFECTS, get, text
from tests.watch.admin.test_dashboard import unanswered
from tests.watch.rows import ended, running

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]

WORD = {"applied": "yes", "reason": "seen in the console"}


def settle(client: Client, effect: Effect, **word: str) -> int:
    return client.post(f"{EFFECTS}{effect.pk}/settle/", word).status_code


@pytest.mark.bar
def test_without_the_permission_there_is_no_way_to_settle(viewer: Client) -> None:
    """No button, and a direct request is refused."""
    effect = unanswered()
    assert "settle/" not in text(get(viewer, f"{EFFECTS}{effect.pk}/change/"))
    assert settle(viewer, effect, **WORD) == 403
    assert viewer.get(f"{EFFECTS}{effect.pk}/settle/").status_code == 403
    effect.refresh_from_db()
    assert effect.state == "manual"


@pytest.mark.parametrize(("applied", "state"), [("yes", "confirmed"), ("no", "prepared")])
def test_the_word_is_kept_with_name_and_reason(
    operator: Operator, applied: str, state: str
) -> None:
    """On the effect, in the admin's log; the job goes on by itself."""
    job = ended(state=State.FAILED)
    effect, client = unanswered(state="unknown", job=job), operator("settle_effect")
    assert f"effect/{effect.pk}/settle/" in text(get(client, f"{EFFECTS}{effect.pk}/change/"))
    assert settle(client, effect, applied=applied, reason="seen") == 302
    effect.refresh_from_db()
    assert (effect.state, effect.note) == (state, "seen")
    entry = LogEntry.objects.get()
    assert effect.settled_by == entry.user.get_username()
    assert "seen" in entry.change_message


def test_the_call_of_a_job_that_has_ended_is_not_under_way(operator: Operator) -> None:
    """Its worker died for the last time in the call: nobody else would ever ask about it."""
    effect = unanswered(state="sent", job=ended(state=State.DEAD))
    client = operator("settle_effect")
    assert f"effect/{effect.pk}/settle/" in text(get(client, DASHBOARD))
    assert settle(client, effect, **WORD) == 302
    effect.refresh_from_db()
    assert (effect.state, effect.note) == ("confirmed", WORD["reason"])


def test_of_a_job_that_has_succeeded_nothing_is_sent_again(operator: Operator) -> None:
    """The page says so, and the effect ends as a no."""
    effect, client = unanswered(), operator("settle_effect")
    assert "nothing is sent again" in text(get(client, f"{EFFECTS}{effect.pk}/settle/"))
    assert settle(client, effect, applied="no", reason="seen") == 302
    effect.refresh_from_db()
    assert effect.state == "rejected"


@pytest.mark.parametrize(
    "word",
    [
        {},
        {"applied": "yes"},
        {"reason": "r"},
        {"applied": "x", "reason": "r"},
        {"applied": "no", "reason": "  "},
    ],
    ids=str,
)
def test_a_word_without_a_reason_is_asked_for_again(
    operator: Operator, word: dict[str, str]
) -> None:
    """What was said already is kept in the form."""
    effect, client = unanswered(), operator("settle_effect")
    answer = client.post(f"{EFFECTS}{effect.pk}/settle/", word)
    assert "Say whether it happened" in text(answer)
    effect.refresh_from_db()
    assert effect.state == "manual"


def test_what_is_settled_stays(operator: Operator) -> None:
    """A second click, or an answer that came after all, changes nothing."""
    client = operator("settle_effect")
    for state in ("confirmed", "sent", "prepared"):
        effect = unanswered(state=state, job=running())
        assert settle(client, effect, **WORD) == 302
        effect.refresh_from_db()
        assert (effect.state, effect.note) == (state, "")
    assert not LogEntry.objects.exists()
    assert client.get(f"{EFFECTS}0/settle/").status_code == 404


def test_the_answer_is_never_shown(viewer: Client) -> None:
    """It may hold what the provider knows of people."""
    effect = unanswered()
    for path in (EFFECTS, f"{EFFECTS}{effect.pk}/change/"):
        assert "secret" not in text(get(viewer, path))
