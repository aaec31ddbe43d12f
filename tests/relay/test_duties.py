"""Duties: done by whoever looks first, never twice at once, never more often than they say."""

from datetime import timedelta

import pytest
from django.utils import timezone

from celery_guard.models import Duty
from celery_guard.relay import duties
from celery_guard.relay.duties import Rota, duty

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def done(monkeypatch):
    """What the one registered duty, `dust`, did."""
    monkeypatch.setattr(duties, "_registered", {})
    monkeypatch.setattr(duties, "POINTS", dict(duties.POINTS))
    calls = []
    duty("dust", every=lambda: 60.0)(calls.append)
    return calls


def test_a_duty_is_done_once_however_many_look(done):
    """The row is the lease: of many relays one does it, the others pass."""
    assert [Rota("default").do_what_is_due() for _ in range(3)] == [["dust"], [], []]
    assert done == ["default"]
    row = Duty.objects.get(name="dust")
    assert row.done_at is not None
    assert row.busy_until is None


def test_a_duty_comes_again_after_its_period(done):
    """Its pace is counted from one beginning to the next, by the database's clock."""
    Rota("default").do_what_is_due()
    Duty.objects.update(begun_at=timezone.now() - timedelta(seconds=59))
    assert Rota("default").do_what_is_due() == []
    Duty.objects.update(begun_at=timezone.now() - timedelta(seconds=61))
    assert Rota("default").do_what_is_due() == ["dust"]


def test_a_busy_duty_is_left_alone_and_an_abandoned_one_taken_up(done):
    """A duty whose holder died is done by another once its time is over."""
    past = timezone.now() - timedelta(seconds=500)
    ahead = timezone.now() + timedelta(seconds=5)
    Duty.objects.create(name="dust", begun_at=past, busy_until=ahead)
    assert Rota("default").do_what_is_due() == []
    Duty.objects.update(busy_until=past)
    assert Rota("default").do_what_is_due() == ["dust"]


def test_a_duty_that_promises_a_time_waits_for_no_run_that_may_be_dead(done):
    """Begun a period ago, it is due, whether or not that run has ended."""
    duty("rush", every=lambda: 60.0, alone=False)(done.append)
    ahead = timezone.now() + timedelta(seconds=500)
    begun = timezone.now() - timedelta(seconds=59)
    Duty.objects.create(name="rush", begun_at=begun, busy_until=ahead)
    assert Rota("default").do_what_is_due() == ["dust"]
    Duty.objects.filter(name="rush").update(begun_at=timezone.now() - timedelta(seconds=61))
    assert Rota("default").do_what_is_due() == ["rush"]


def test_a_failing_duty_disturbs_no_other_and_is_tried_again(done):
    """An error is told as an event; `done_at` stays the time of the last success."""

    @duty("break", every=lambda: 0.0)
    def fail(using):
        raise RuntimeError(using)

    rota = Rota("default")
    assert rota.do_what_is_due() == ["dust"]
    row = Duty.objects.get(name="break")
    assert (row.done_at, row.busy_until) == (None, None)
    assert row.begun_at is not None


def test_a_rota_knows_when_to_look_again(done):
    """The thread sleeps until the soonest duty could be due."""
    rota = Rota("default")
    assert rota.pause() == 0.01
    rota.do_what_is_due()
    assert 50 < rota.pause() <= 60
