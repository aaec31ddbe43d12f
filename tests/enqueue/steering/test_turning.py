"""Turning switches on and off."""

from __future__ import annotations

from datetime import timedelta

import pytest

from celery_guard.enqueue.steering.models import Switch
from celery_guard.enqueue.steering.reading import switches
from celery_guard.enqueue.steering.turning import turn_off, turn_on

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]


def test_all_faults_at_once() -> None:
    """No reason, no author, no end, no such action: all is told, and nothing is written."""
    with pytest.raises(ValueError, match=r"reason.*author.*action.*7 days"):
        turn_on("default", action="explode", reason=" ", author="", seconds=1e9)
    assert not Switch.objects.exists()


def test_the_database_counts_the_time() -> None:
    """A switch lasts as long as was said, by one clock."""
    switch = turn_on("default", action="hold", reason="r", author="me", seconds=90, lane="low")
    assert abs(switch.expires_at - switch.created_at - timedelta(seconds=90)) < timedelta(seconds=1)
    assert str(switch) == f"switch {switch.pk}: hold lane low"


def test_an_end_happens_once_and_is_kept() -> None:
    """Who ended it is written down; a second end finds nothing, and the row stays."""
    switch = turn_on("default", action="hold", reason="r", author="me", seconds=90)
    assert turn_off("default", [switch.pk], by="you") == [switch.pk]
    assert turn_off("default", [switch.pk], by="them") == []
    switch.refresh_from_db()
    assert switch.ended_by == "you"
    assert switch.ended_at is not None


def test_what_is_over_is_no_longer_read() -> None:
    """Expired ones count for nothing; a hold ended before its time is known as such."""
    gone = turn_on("default", action="hold", reason="r", author="me", seconds=90)
    Switch.objects.filter(pk=gone.pk).update(expires_at=gone.created_at)
    ended = turn_on("default", action="hold", reason="r", author="me", seconds=90)
    turn_off("default", [ended.pk], by="me")
    refused = turn_on("default", action="refuse", reason="r", author="me", seconds=90)
    found = switches("default")
    assert [one.id for one in found.holds] == []
    assert [one.id for one in found.ended] == [ended.pk]
    assert [one.id for one in found.refusals] == [refused.pk]


def test_without_a_switch_nothing_is_asked_twice(django_assert_num_queries: object) -> None:
    """One small query a second and process, however much is asked."""
    with django_assert_num_queries(1):  # type: ignore[operator]
        for _ in range(50):
            switches("default")
