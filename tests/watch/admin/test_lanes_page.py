"""The lanes page: is anything late, and why, in words."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from celery_guard.models import LaneSnapshot
from celery_guard.watch.snapshot import take_snapshot
from tests.watch.admin.pages import LANES, get, text
from tests.watch.rows import aged, running

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]


def page(client: Client) -> str:
    return " ".join(text(get(client, LANES)).split())


def test_every_lane_is_shown_with_its_age_against_its_objective(viewer: Client) -> None:
    """And how old the measurement is."""
    aged("low", seconds=90)
    take_snapshot("default")
    found = page(viewer)
    assert "Measured 0" in found
    assert "1.5 min" in found
    assert found.index(">high") < found.index(">medium") < found.index(">low")
    assert "late" not in found.split("<tbody>")[1]


def test_a_late_lane_says_why_in_words(viewer: Client) -> None:
    """Colour is never the only sign."""
    aged("high", seconds=500)
    take_snapshot("default")
    assert "late, no worker" in page(viewer)
    LaneSnapshot.objects.update(slots=2)
    assert "late, nothing starts" in page(viewer)
    running("high")
    take_snapshot("default")
    assert "nothing starts" not in page(viewer)


def test_a_stale_snapshot_says_so_first(viewer: Client) -> None:
    """Old numbers are shown, under a line that says that they are old."""
    take_snapshot("default")
    LaneSnapshot.objects.update(taken_at=timezone.now() - timedelta(hours=2))
    found = page(viewer)
    assert "Stale: measured 2 h ago." in found
    assert 'class="guard-bad">Stale' in found


def test_nothing_measured_says_what_is_missing(viewer: Client) -> None:
    """An empty page would look like empty queues."""
    assert "Nothing has been measured yet. A relay or a worker has to run." in page(viewer)


def test_what_is_not_known_is_not_zero(viewer: Client) -> None:
    """Dead letters before the first walk, counts at their bound."""
    take_snapshot("default")
    assert "not known" in page(viewer)
    LaneSnapshot.objects.update(dead_letters=3, capped=True, ready=100_000)
    found = page(viewer)
    assert "not known" not in found
    assert "at least 100000" in found
