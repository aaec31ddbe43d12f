"""That the broker is away is written once, by the lane's leader alone."""

from __future__ import annotations

import uuid

import pytest

from celery_guard.jobs.clock import in_seconds
from celery_guard.models import LaneLead
from celery_guard.relay import away
from celery_guard.relay import lead as leads
from celery_guard.relay.away import Word, is_away

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]


def test_it_is_said_since_when_and_taken_back() -> None:
    """Said again it keeps its time; a lane that is not led says nothing."""
    lead = leads.take("default", uuid.uuid4(), ["high"], 60)["high"]
    word = Word("default")
    word.give({lead: False})
    assert not is_away("default", "high", 0)
    word.give({lead: True})
    assert is_away("default", "high", 0)
    assert not is_away("default", "low", 0)
    LaneLead.objects.filter(lane="high").update(failing_since=in_seconds(-60))
    word.give({lead: True})
    assert away.say("default", lead, away=True)
    assert is_away("default", "high", 59)
    word.give({lead: False})
    assert not is_away("default", "high", 0)


def test_whoever_has_lost_the_lane_says_nothing() -> None:
    """Late words of an old leader meet another owner and term; one who has it anew begins anew."""
    owner = uuid.uuid4()
    old = leads.take("default", owner, ["high"], 60)["high"]
    word = Word("default")
    LaneLead.objects.update(lead_until=in_seconds(-1))
    leads.take("default", uuid.uuid4(), ["high"], 60)
    word.give({old: True})
    assert not is_away("default", "high", 0)
    LaneLead.objects.update(lead_until=in_seconds(-1))
    new = leads.take("default", owner, ["high"], 60)["high"]
    word.give({new: True})
    assert is_away("default", "high", 0)
