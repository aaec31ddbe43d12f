"""Leading: one relay a lane, and a lead that was lost is really lost."""

import threading
import uuid
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from celery_guard.models import LaneLead
from celery_guard.relay import lead as leads
from tests.factories import make_job

pytestmark = pytest.mark.django_db(transaction=True)


def lapse(lane="high"):
    LaneLead.objects.filter(lane=lane).update(lead_until=timezone.now() - timedelta(seconds=1))


def test_a_lane_has_one_leader():
    """A second relay takes only what nobody leads."""
    first, second = uuid.uuid4(), uuid.uuid4()
    assert set(leads.take("default", first, ["high"], 60)) == {"high"}
    assert set(leads.take("default", second, ["high", "low"], 60)) == {"low"}


def test_every_change_of_leader_raises_the_term():
    """A term never comes back, so an old leader's statements can't match by chance."""
    first, second = uuid.uuid4(), uuid.uuid4()
    assert leads.take("default", first, ["high"], 60)["high"].term == 1
    lapse()
    assert leads.take("default", second, ["high"], 60)["high"].term == 2
    lapse()
    assert leads.take("default", first, ["high"], 60)["high"].term == 3


def test_renewing_keeps_what_is_held_and_shows_what_is_lost():
    """A leader learns at its next renewal that another took over."""
    first, second = uuid.uuid4(), uuid.uuid4()
    held = leads.take("default", first, ["high", "low"], 60)
    lapse("low")
    leads.take("default", second, ["low"], 60)
    assert leads.renew("default", first, 60) == {"high": held["high"]}


def test_a_lapsed_lead_that_nobody_took_is_renewed():
    """A pause longer than the lease does no harm while nobody else wanted the lane."""
    owner = uuid.uuid4()
    held = leads.take("default", owner, ["high"], 60)
    lapse()
    assert leads.renew("default", owner, 60) == held
    assert leads.take("default", uuid.uuid4(), ["high"], 60) == {}


def test_resigning_frees_the_lanes_at_once():
    """A relay that ends well makes nobody wait for its lease."""
    owner = uuid.uuid4()
    leads.take("default", owner, ["high", "low"], 60)
    assert leads.resign("default", owner) == 2
    assert set(leads.take("default", uuid.uuid4(), ["high", "low"], 60)) == {"high", "low"}


def test_lanes_are_those_of_the_settings_and_those_in_use():
    """A queue outside all lanes is led too, as soon as it holds a job."""
    make_job(lane="reports", queue="reports")
    assert leads.find_lanes("default") == {"high", "medium", "low", "reports"}


def test_of_many_that_take_a_free_lane_at_once_one_gets_it():
    """The conditional UPDATE decides, not the look before it."""
    lanes = [f"lane-{number}" for number in range(20)]
    leads.take("default", uuid.uuid4(), lanes, 0)
    start = threading.Barrier(4)
    found: list[str] = []

    def take():
        start.wait()
        for lane in lanes:
            found.extend(leads.take("default", uuid.uuid4(), [lane], 60))
        connection.close()

    threads = [threading.Thread(target=take) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(found) == sorted(lanes)
