"""A switch that turns new requests away."""

from __future__ import annotations

import pytest
from celery import chain
from django.db import connection, transaction

from celery_guard import AdmissionRefused, admit, enqueue_many
from celery_guard.enqueue.steering import reading
from celery_guard.enqueue.steering.models import Switch
from celery_guard.enqueue.steering.turning import turn_off, turn_on
from celery_guard.models import Job
from tests.project.shop.tasks import add, mark, mark_for, mark_low
from tests.run.delivery import deliver
from tests.run.marks import on_database

pytestmark = [*on_database, pytest.mark.mariadb]


def refuse(**scope: str) -> Switch:
    """A refusal, from now."""
    return turn_on("default", action="refuse", reason="a flood", author="me", seconds=600, **scope)


@pytest.mark.parametrize(
    "scope",
    [{"task": mark_for.name}, {"lane": "high"}, {"tenant": "a"}, {}],
    ids=["task", "lane", "tenant", "all"],
)
def test_a_refused_call_leaves_nothing(scope: dict[str, str]) -> None:
    """Every form of asking is refused with a Retry-After and the operator's reason; no job stays."""
    switch = refuse(**scope)
    with transaction.atomic():
        with pytest.raises(AdmissionRefused) as caught:
            mark_for.delay("a", "x")
        assert Job.objects.count() == 0, "the caller's transaction goes on"
    for ask in (
        lambda: admit(mark_for, ("a", "x")),
        lambda: enqueue_many([mark_for.s("a", "y"), mark_for.s("a", "z")]),
        lambda: mark_for.apply_async(("a", "x"), on_overload="raise"),
    ):
        with pytest.raises(AdmissionRefused):
            ask()
    assert Job.objects.count() == 0
    refused = caught.value
    assert (refused.reason, refused.status) == ("switch", 503)
    assert refused.retry_after >= 1
    assert f"switch {switch.pk} (a flood)" in str(refused)
    turn_off("default", [switch.pk], by="me")
    assert mark_for.delay("a", "x").created


def test_others_are_not_refused() -> None:
    """Only what fits every word of the switch is turned away."""
    refuse(lane="high", tenant="a")
    assert mark_for.delay("b", "x").created
    assert mark_low.delay("y").created
    assert admit(mark_for, ("b", "z")).granted
    assert not admit(mark_for, ("a", "z"), on_refused="return").granted


def test_a_call_whose_job_is_there_is_answered() -> None:
    """A repeated request adds nothing: it gets its job."""
    first = mark_for.delay("a", "x")
    refuse(task=mark_for.name)
    assert mark_for.delay("a", "x").job == first.job


def test_owed_work_goes_on(scratch: object) -> None:
    """The next step of a chain is owed, and comes whatever is refused now."""
    first = chain(mark.si("first", "1"), mark_low.si("second")).apply_async()
    refuse()
    deliver(Job.objects.get(key="mark:first"))
    assert Job.objects.filter(key="low:second").exists(), first


def test_a_hold_refuses_nobody() -> None:
    """A paused lane takes new work; it waits."""
    turn_on("default", action="hold", reason="r", author="me", seconds=60)
    assert add.delay(1, 2).created


def test_a_switch_that_cannot_be_read_stops_nobody() -> None:
    """A table that is not there yet: the call goes on, in the caller's transaction too."""
    refuse()
    reading.forget()
    with connection.schema_editor() as editor:
        editor.alter_db_table(Switch, "celery_guard_switch", "celery_guard_switch_away")
    try:
        with transaction.atomic():
            assert mark.delay("x").created
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(Switch, "celery_guard_switch_away", "celery_guard_switch")
    assert Job.objects.count() == 1
