"""A relay whose transaction the database ends for a deadlock begins it anew, and calls nobody."""

from collections.abc import Callable

import pytest
from celery import current_app
from django.db import transaction

from celery_guard.models import Duty, Job
from celery_guard.relay import duties
from celery_guard.relay.duties import Rota, duty
from celery_guard.relay.loop import Relay
from tests.factories import make_job
from tests.kit.rival import rival
from tests.kit.told import told

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def two() -> tuple[Callable[[], Job], Callable[[], Job]]:
    """Two locks, to be taken in one order or the other."""
    one, other = make_job(), make_job()
    return (
        lambda: Job.objects.select_for_update().get(pk=one.pk),
        lambda: Job.objects.select_for_update().get(pk=other.pk),
    )


def test_a_duty_that_loses_a_deadlock_has_not_failed(
    two: tuple[Callable[[], Job], Callable[[], Job]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done again at once instead of a period later, and no error is told."""
    monkeypatch.setattr(duties, "_registered", {})
    monkeypatch.setattr(duties, "POINTS", dict(duties.POINTS))
    one, other = two

    @duty("dust", every=lambda: 60.0)
    def take_both(using: str) -> None:
        with transaction.atomic(using=using):
            one()
            other()

    with told() as heard, rival(other, one):
        assert Rota("default").do_what_is_due() == ["dust"]
    assert Duty.objects.get(name="dust").done_at is not None
    assert heard == []


def test_a_turn_that_loses_a_deadlock_has_not_lost_the_database(
    two: tuple[Callable[[], Job], Callable[[], Job]],
) -> None:
    """The relay goes on with the connection that it has."""
    one, other = two
    turns = []

    def turn() -> None:
        turns.append(None)
        with transaction.atomic():
            one()
            other()

    with told() as heard, rival(other, one):
        assert Relay("default", current_app)._safely(turn)
    assert len(turns) > 1
    assert heard == []
