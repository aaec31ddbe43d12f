"""A switch that sends new jobs to the next lower lane."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain
from django.db import transaction

from celery_guard import admit, enqueue_many, events
from celery_guard.enqueue.steering.models import Switch
from celery_guard.enqueue.steering.turning import turn_off, turn_on
from celery_guard.events import Event
from celery_guard.models import Job
from tests.project.shop.tasks import ask_within, mark, mark_for, mark_low
from tests.relay.ledger import queue_of
from tests.run.delivery import deliver
from tests.run.marks import on_database

pytestmark = [*on_database, pytest.mark.mariadb]


def demote(**scope: str) -> Switch:
    """A demotion, from now."""
    return turn_on("default", action="demote", reason="a flood", author="me", seconds=600, **scope)


def lanes() -> dict[str, str]:
    """The lane of each job, by its key."""
    return {str(key): lane for key, lane in Job.objects.values_list("key", "lane")}


@pytest.mark.bar
@pytest.mark.parametrize(
    "scope",
    [{"task": mark_for.name}, {"lane": "high"}, {"tenant": "a"}, {}],
    ids=["task", "lane", "tenant", "all"],
)
def test_new_jobs_go_one_lane_down_while_it_is_on(scope: dict[str, str]) -> None:
    """Job and message, by every form of asking; afterwards they go where they went before."""
    switch = demote(**scope)
    with transaction.atomic():
        mark_for.delay("a", "1")
    enqueue_many([mark_for.s("a", "2"), mark_for.s("a", "3")])
    mark_for.apply_async(("a", "4"), on_overload="raise", countdown=5)
    assert set(lanes().values()) == {"medium"}
    for job in Job.objects.select_related("message"):
        assert job.message is not None
        assert f'"routing_key": "{queue_of("medium")}"' in job.message.envelope
    turn_off("default", [switch.pk], by="me")
    job = mark_for.delay("a", "5").job
    assert job is not None
    assert job.lane == "high"


def test_others_stay() -> None:
    """Only what fits every word goes down; a switch of another lane means nobody here."""
    demote(lane="high", tenant="a")
    demote(lane="medium")
    mark_for.delay("b", "x")
    mark_low.delay("y")
    assert sorted(lanes().values()) == ["high", "low"]


def test_a_call_that_names_a_queue_goes_below_that_lane() -> None:
    """One outside all lanes is kept: nothing is below it."""
    demote()
    mark_low.apply_async(("1",), queue=queue_of("high"))
    mark_low.apply_async(("2",), queue="reports")
    mark_low.apply_async(("3",), routing_key=queue_of("high"))
    assert lanes()["low:1"] == "medium"
    assert lanes()["low:2"] == "reports"
    assert len(lanes()) == 3


def test_below_the_lowest_lane_there_is_nothing() -> None:
    """Its jobs stay where they are; a switch that names it is refused."""
    demote(task=mark_low.name)
    mark_low.delay("x")
    assert lanes() == {"low:x": "low"}
    with pytest.raises(ValueError, match="there is no lane below 'low'"):
        demote(lane="low")


def test_a_place_is_asked_for_where_the_job_will_go() -> None:
    """And the job that takes it goes down once, not twice."""
    demote(task=mark_for.name)
    admission = admit(mark_for, ("a", "x"))
    assert (admission.action, admission.lane) == ("accept", "medium")
    mark_for.delay("a", "x")
    assert set(lanes().values()) == {"medium"}


def test_owed_work_stays_in_its_lane(scratch: object) -> None:
    """The next step of a chain, and a job that is there already."""
    first = chain(mark.si("first", "1"), mark.si("second", "2")).apply_async()
    switch = demote()
    assert mark.delay("first", "1").created is False
    deliver(Job.objects.get(key="mark:first"))
    assert lanes() == {"mark:first": "medium", "mark:second": "medium"}, first
    assert switch.scope == "everything"


def test_what_a_task_asks_for_is_new(scratch: object) -> None:
    """An import that makes ten thousand jobs is the very case; a refusal would break it."""
    demote(task=mark.name)
    ask_within.delay("x")
    deliver(Job.objects.get(key="asking:x"))
    assert lanes() == {"asking:x": "low", "mark:x": "low"}


def test_it_is_told_with_the_admissions() -> None:
    """The same event and counter as for a lane that is full."""
    demote(task=mark.name)
    heard: list[dict[str, Any]] = []

    def hear(event: Event) -> None:
        if event.name == "enqueue.degraded":
            heard.append(dict(event.facts))

    events.receive(hear)
    try:
        mark.delay("x")
    finally:
        events._receivers.remove(hear)
    assert heard == [{"task": mark.name, "lane": "low", "action": "demote", "reason": "switch"}]
