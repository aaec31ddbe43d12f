"""The app's page: is anything late, why, and what waits for a person."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from celery_guard.conf import guard_settings
from celery_guard.enqueue.steering.turning import turn_on
from celery_guard.jobs.clock import database_time
from celery_guard.jobs.states import State
from celery_guard.models import Attempt, Counter, Effect, Job, LaneSample, LaneSnapshot
from celery_guard.watch import beside, brokers, samples
from celery_guard.watch.snapshot import take_snapshot
from tests.watch.admin.operators import Operator
from tests.watch.admin.pages import DASHBOARD, get, text
from tests.watch.rows import aged, ended, sent

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]


def page(client: Client) -> str:
    return " ".join(text(get(client, DASHBOARD)).split())


def failed(task: str = "shop.pay", error: str = "shop.Boom: card 4111", **changes: object) -> Job:
    """A dead letter with the attempt that ended it."""
    job = ended(state=State.FAILED, task=task, **changes)
    now = timezone.now()
    Attempt.objects.create(
        job=job,
        number=1,
        outcome="failed",
        reason="unknown_error",
        error=error,
        fingerprint="f" * 32 if error else "",
        ended_at=now,
    )
    return job


def unanswered(state: str = "manual", **changes: object) -> Effect:
    """An effect that was sent and has no answer."""
    values = {"name": "charge", "recovery": "manual", "provider_key": "k" * 64, "job": ended()}
    now = timezone.now()
    return Effect.objects.create(
        **{
            **values,
            "state": state,
            "created_at": now,
            "sent_at": now,
            "answer": '"secret"',
            **changes,
        }
    )


@pytest.mark.bar
def test_the_whole_page_takes_few_bounded_queries(operator: Operator) -> None:
    """With every part filled, for an operator who may do all that it offers (`get` counts)."""
    aged("high", seconds=500)
    take_snapshot("default")
    in_broker(mails=(5, 30.0))
    failed()
    ended(state=State.FAILED, task="shop.new", reason="unknown_task")
    unanswered()
    turn_on("default", action="hold", lane="low", reason="too hot", author="ana", seconds=600)
    found = page(operator("replay_job", "settle_effect", "steer_jobs"))
    assert re.search(r"[Mm]easured [\d.]+ s ago", found)
    for part in (
        'class="guard-old" d="M',
        "too hot",
        "shop.new",
        "shop.pay",
        "mails",
        "Settle",
        "Replay",
    ):
        assert part in found, part


def test_a_late_lane_says_so_and_by_how_much(viewer: Client) -> None:
    """In words, beside the bar."""
    aged("high", seconds=29_760)
    take_snapshot("default")
    found = page(viewer)
    assert "late, no worker" in found
    assert "8.3 h" in found
    assert 'value="100"' in found


def in_broker(**queues: tuple[int, float | None]) -> None:
    """The broker's queues by name: messages, and seconds of the next one; fresh for a minute more."""
    now = database_time("default")
    oldest = {
        name: round((now.timestamp() - age) * beside.MILLI)
        for name, (_, age) in queues.items()
        if age is not None
    }
    ready = {name: number for name, (number, _) in queues.items()}
    numbers = {brokers.READY: ready, brokers.OLDEST: oldest}
    beside.keep("default", brokers.BROKER, numbers, now + timedelta(minutes=1))


def test_a_lane_shows_what_its_queue_holds_beside_what_the_ledger_has_sent(viewer: Client) -> None:
    """Depth and the age of the next in line, to check one against the other; other queues below."""
    sent("high")
    take_snapshot("default")
    high, low = (guard_settings().lane(lane).queue for lane in ("high", "low"))
    in_broker(**{high: (7, 10_800.0), low: (3, None), "mails": (5, 7200.0), "idle": (0, None)})
    found = page(viewer)
    assert "<dt>Sent, not started</dt><dd>1</dd>" in found
    assert "<dt>In the broker's queue</dt><dd>7, the next for 3 h</dd>" in found
    assert "<dt>In the broker's queue</dt><dd>3</dd>" in found
    assert "Other queues of the broker: <b>mails</b> 5, the next for 2 h<" in found


def test_of_a_broker_that_nobody_asked_nothing_is_shown(viewer: Client) -> None:
    """Neither an old number nor a zero: what is not known is a question mark."""
    take_snapshot("default")
    in_broker(**{guard_settings().lane("high").queue: (7, None), "mails": (5, None)})
    Counter.objects.filter(name=brokers.BROKER.name).update(value=1000)
    found = page(viewer)
    assert found.count("<dt>In the broker's queue</dt><dd>?</dd>") == found.count(
        'aria-labelledby="guard-lane'
    )
    assert "Other queues" not in found


def test_a_stale_snapshot_is_told_first(viewer: Client) -> None:
    """And the age of a fresh one always stands there."""
    assert "Nothing has been measured yet." in page(viewer)
    take_snapshot("default")
    LaneSnapshot.objects.update(taken_at=timezone.now() - timedelta(hours=2))
    found = page(viewer)
    assert found.index("Stale: measured 2 h ago.") < found.index("guard-card")


def test_the_time_to_drain_is_the_backlog_over_the_surplus(viewer: Client) -> None:
    """Not in sight where nothing gets less."""
    take_snapshot("default")
    LaneSnapshot.objects.filter(lane="high").update(
        ready=100, completions_per_second=3, arrivals_per_second=1
    )
    LaneSnapshot.objects.filter(lane="low").update(
        ready=100, completions_per_second=1, arrivals_per_second=3
    )
    found = page(viewer)
    assert "<dd>50 s</dd>" in found
    assert "not in sight" in found


def test_curves_leave_gaps_where_nobody_measured(viewer: Client) -> None:
    """A line across an outage would be made up."""
    take_snapshot("default")
    now = samples.minute_of(timezone.now())
    LaneSample.objects.all().delete()
    for minutes in (10, 11, 12, 30, 31):
        LaneSample.objects.create(lane="high", minute=now - timedelta(minutes=minutes), age=4)
    path = re.search(r'class="guard-old" d="([^"]+)"', page(viewer))
    assert path is not None
    assert [step[0] for step in path[1].split(" ") if step[0] in "ML"] == list("MLMLL")


def test_dead_letters_are_told_by_what_they_have_in_common(viewer: Client) -> None:
    """The class of the error, never its message; replayed ones are none any more."""
    for _ in range(3):
        failed()
    failed(task="shop.mail", error="")
    replayed = failed(task="shop.gone")
    Job.objects.filter(pk=replayed.pk).update(state="waiting", due_at=timezone.now())
    found = page(viewer)
    rows = re.findall(
        r"<tr> <th scope=\"row\"><a [^>]+>(shop[^<]+)</a></th> <td>([^<]+)</td><td>(\d+)", found
    )
    assert rows == [("shop.pay", "shop.Boom", "3"), ("shop.mail", "unknown_error", "1")]
    assert "4111" not in found


def test_dead_letters_that_were_never_tried_are_told_by_reason(viewer: Client) -> None:
    """A task that no worker knew has no attempt; its job waits for a decision all the same."""
    failed()
    for _ in range(2):
        ended(state=State.FAILED, task="shop.new", reason="unknown_task")
    ended(state=State.FAILED, task="shop.purged", reason="unknown_task", error=None)
    found = page(viewer)
    rows = re.findall(
        r"<tr> <th scope=\"row\"><a [^>]+>(shop[^<]+)</a></th> <td>([^<]+)</td><td>(\d+)", found
    )
    assert rows == [("shop.new", "unknown_task", "2"), ("shop.pay", "shop.Boom", "1")]


def test_effects_that_wait_for_a_person_are_listed(viewer: Client, operator: Operator) -> None:
    """With the key to look for; the way to settle for whoever may."""
    effect = unanswered(name="<b>charge")
    unanswered(state="confirmed", name="done")
    found = page(viewer)
    assert "&lt;b&gt;charge" in found
    assert effect.provider_key in found
    assert "secret" not in found
    assert "settle/" not in found
    assert f"effect/{effect.pk}/settle/" in page(operator("settle_effect"))


def test_nothing_is_shown_without_the_right_to_see_it(operator: Operator) -> None:
    """Each part asks for its own permission."""
    take_snapshot("default")
    failed()
    unanswered()
    found = page(operator("view_job", view=False))
    for part in ("guard-card", "Dead letters by error", "Effects without an answer"):
        assert part not in found


def test_the_page_has_no_inline_code(viewer: Client) -> None:
    """A strict policy has nothing to object to."""
    take_snapshot("default")
    failed()
    live = page(viewer).split("data-guard-live>")[1].split('id="content-main"')[0]
    assert "style=" not in live
    assert "<script" not in live
