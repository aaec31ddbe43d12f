"""Requests of one coalesce key in different lanes: one run, in the fastest of them."""

import json
import threading
import uuid
from typing import Any

import pytest
from django.db import connections

from celery_guard.jobs import adding, claiming, folding, lanes, running, standing
from celery_guard.jobs.clock import in_seconds
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.release import release
from celery_guard.models import Job, OutboxMessage
from tests.factories import envelope
from tests.jobs.requests import (
    ask,
    begin,
    claim,
    held_elsewhere,
    let_time_pass,
    run,
    send,
    state,
)
from tests.kit.wait import wait_for
from tests.relay.ledger import lead, queue_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]


def address(job: Job) -> tuple[str, list[str]]:
    """Where the job's message goes, and which queues it declares."""
    job.refresh_from_db()
    assert job.message is not None
    fields = json.loads(job.message.envelope)
    return fields["routing_key"], fields["declare"]


def to(lane: str) -> tuple[str, list[str]]:
    """The same of a message made for ``lane``."""
    return queue_of(lane), [queue_of(lane)]


@pytest.mark.bar
@pytest.mark.parametrize("first", ["high", "low"])
@pytest.mark.parametrize("newest", ["high", "low"])
def test_requests_in_two_lanes_are_one_run_in_the_faster(first: str, newest: str):
    """The newest speaks for all, whichever leader comes to the key first."""
    other = "low" if newest == "high" else "high"
    older, last = ask(lane=other), ask(lane=newest)
    if first == "low":
        assert send("low") == []
    assert send() == [last.pk]
    assert send("low") == []
    assert (state(older), older.survivor_id) == ("superseded", last.pk)
    assert (state(last), last.lane) == ("waiting", "high")
    assert address(last) == to("high")
    run(last)
    assert send() == send("low") == []


def test_the_new_message_is_the_old_one_with_another_address():
    """Its own body, headers and id; the priority of the one whose way it goes; no row is left over."""
    text = envelope("1", "shop.noop", queue_of(), exchange="x", routing_key="k")
    text = text.replace('"delivery_mode": 2', '"delivery_mode": 2, "priority": 7')
    ask(text=text)
    newest = ask(lane="low", args=(1, "two"))
    assert newest.message is not None
    old = OutboxMessage.objects.get(pk=newest.message.pk)
    assert send() == [newest.pk]
    newest.refresh_from_db()
    assert newest.message is not None
    assert bytes(newest.message.body) == bytes(old.body)
    before, after = json.loads(old.envelope), json.loads(newest.message.envelope)
    assert (after["exchange"], after["routing_key"], after["declare"]) == ("x", "k", [queue_of()])
    assert after["properties"].pop("priority") == 7
    assert (after["headers"], after["properties"]) == (before["headers"], before["properties"])
    assert not OutboxMessage.objects.filter(pk=old.pk).exists()


def test_a_request_whose_message_nobody_can_read_moves_nothing():
    """It stays in its lane, to be parked there; the pass goes on with the other keys."""
    ask()
    broken, other = ask(lane="low", text="{broken"), ask("other")
    assert send() == [other.pk]
    assert (state(broken), broken.lane) == ("waiting", "low")
    assert send("low") == [broken.pk]


@pytest.mark.bar
def test_what_was_sent_to_a_faster_queue_is_followed():
    """One run more, after the one under way, and not two at once in two queues."""
    fast = ask()
    assert send() == [fast.pk]
    slow = ask(lane="low")
    assert send("low") == []
    slow.refresh_from_db()
    assert (slow.reason, slow.lane) == ("follower", "low")
    run(fast)
    assert send("low") == [slow.pk]


def test_a_key_keeps_its_place_in_the_faster_lane():
    """EV-15: requests in a lane that is looked at sooner don't send it to the end of the line."""
    first = ask(due_in=-60)
    for _ in range(3):
        newest = ask(lane="low")
        assert send("low") == []
    newest.refresh_from_db()
    assert (newest.lane, newest.due_at) == ("high", first.due_at)
    assert send() == [newest.pk]


def test_a_back_off_in_the_faster_lane_holds_for_the_key():
    """The newest takes it over with the lane."""
    tried = ask(reason="retry", failures=2, due_in=300)
    newest = ask(lane="low")
    assert send("low") == send() == []
    newest.refresh_from_db()
    assert (newest.lane, newest.reason, newest.failures) == ("high", "retry", 2)
    assert newest.due_at == tried.due_at
    assert state(tried) == "superseded"
    let_time_pass(301)
    assert send("low") == []
    assert send() == [newest.pk]


def test_a_queue_outside_all_lanes_stays_alone():
    """Somebody named it; nothing says whether it is faster."""
    named, usual = ask(lane="reports", queue="reports"), ask()
    assert send("reports") == [named.pk]
    assert send() == [usual.pk]
    assert lanes.mates("reports") == ["reports"]


def test_lanes_are_as_fast_as_their_objectives(settings: Any):
    """Their order in the settings says nothing."""
    settings.CELERY_GUARD = {
        **settings.CELERY_GUARD,
        "lanes": {"slow": {"objective": 9000}, "quick": {"objective": 1}},
    }
    assert lanes.mates("low") == ["quick", "high", "medium", "low", "slow"]


def test_an_expired_request_of_another_lane_is_left_to_its_leader():
    """It speaks for nobody, and lends no lane."""
    expired, slow = ask(expires_in=-1), ask(lane="low")
    assert send("low") == [slow.pk]
    assert (state(expired), state(slow)) == ("waiting", "waiting")
    assert send() == []
    assert state(expired) == "expired"


def test_a_job_that_asks_after_an_outside_call_holds_up_the_other_lanes():
    """It goes first and alone, sent by its own lane's leader."""
    asking = ask(lane="low", reason="uncertain")
    newest = ask()
    assert send() == []
    assert send("low") == [asking.pk]
    run(asking)
    assert send() == [newest.pk]


def test_a_cancelled_survivor_leaves_its_lane_to_whoever_steps_in():
    """What the group was promised stays so."""
    oldest, older, newest = ask(), ask(lane="low"), ask(lane="low")
    assert send("low") == []
    assert send() == [newest.pk]
    assert adding.cancel("default", newest.pk) == 1
    assert send("low") == []
    assert send() == [older.pk]
    assert (state(older), older.lane, address(older)) == ("waiting", "high", to("high"))
    assert (state(oldest), oldest.survivor_id) == ("superseded", older.pk)


def test_whoever_waits_for_a_request_in_another_lane_is_answered_by_the_one_that_steps_in():
    """Its echo is found in its own lane."""
    awaited, older, newest = ask(lane="low", awaited=True), ask(lane="low"), ask()
    assert send() == [newest.pk]
    assert send("low") == [awaited.pk]
    assert adding.cancel("default", newest.pk) == 1
    assert send() == [older.pk]
    run(older)
    found = standing.look_through("default", awaited.pk)
    assert found is not None
    assert found.state == "succeeded"


@pytest.mark.bar
@pytest.mark.parametrize("commit", [True, False])
def test_a_leader_that_is_at_the_key_shares_nothing_with_another(commit: bool):
    """The rows that one holds take no part with the other; nothing waits, and nothing is lost."""
    slow, fast = ask(lane="low"), ask()

    def fold_slow() -> None:
        Job.objects.filter(pk=fast.pk).update(lane="elsewhere")
        assert folding.fold("default", "low", [("shop.noop", "k")]) == [slow.pk]

    with held_elsewhere(fold_slow, commit=False):
        assert send() == []
    with held_elsewhere(lambda: Job.objects.select_for_update().get(pk=slow.pk), commit=commit):
        assert send() == [fast.pk]
    assert send("low") == []
    run(fast)
    assert send("low") == [slow.pk]


@pytest.mark.bar
def test_two_relays_on_two_lanes_lose_no_request_and_never_run_two_at_once():
    """Both fold the same key again and again while requests come in either lane."""
    stop, ran, overlap, faults = threading.Event(), [], [], []

    def lead_and_work(lane: str) -> None:
        held = lead(lane)
        try:
            while not stop.is_set():
                for sending in release("default", held, 10, None):
                    owner = uuid.uuid4()
                    found = claiming.claim("default", NamedJob(sending.id), owner=owner, lease=60)
                    if found is not None:
                        ran.append(sending.id)
                        overlap.append(Job.objects.filter(state="running").count() != 1)
                        running.succeed(found.hold)
        except Exception as error:  # noqa: BLE001 - told by the test
            faults.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=lead_and_work, args=(lane,)) for lane in ("high", "low")]
    [thread.start() for thread in threads]
    asked = [ask(lane=("high", "low")[n % 3 == 0]) for n in range(60)]
    try:
        wait_for(
            lambda: faults or not Job.objects.filter(state__in=("waiting", "running")).exists(),
            timeout=40,
            what="every request to be answered",
        )
    finally:
        stop.set()
        [thread.join() for thread in threads]
    assert faults == []
    assert asked[-1].pk in ran
    assert not any(overlap)
    assert set(Job.objects.values_list("state", flat=True)) <= {"succeeded", "superseded"}
    named = set(Job.objects.values_list("message_id", flat=True))
    assert set(OutboxMessage.objects.values_list("pk", flat=True)) == named


def test_a_slow_job_that_was_sent_gives_way_to_a_fast_one():
    """A long queue holds up no faster lane; when its message comes, the slot says wait."""
    slow = ask(lane="low")
    assert send("low") == [slow.pk]
    fast = ask()
    assert send() == [fast.pk]
    held = begin(fast).hold
    assert claim(slow) is None
    Job.objects.filter(pk=slow.pk).update(due_at=in_seconds(0))
    newer = ask()
    assert send() == send("low") == []
    assert running.succeed(held)
    assert send("low") == []
    assert send() == [newer.pk]
    assert state(slow) == "superseded"
