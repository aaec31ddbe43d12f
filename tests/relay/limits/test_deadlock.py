"""A deadlock that the database ends against us is not "the limits are away"."""

import pytest
from django.db import connection

from celery_guard.relay.limits.models import LimitHold
from tests.kit.rival import rival
from tests.relay.limits.stores import Desk, rules, store

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]


def test_a_take_that_loses_a_deadlock_is_done_again() -> None:
    """The take has the dependency's row and waits for a hold; whoever has that wants the row."""
    desk = Desk(store("database"), rules(rate="100/s", concurrency=5))
    assert desk.granted("first")
    stale = LimitHold.objects.create(
        name=desk.rules.name, kind=LimitHold.PERMIT, holder="old", at=1, over=1
    )

    def want() -> None:
        with connection.cursor() as cursor:
            cursor.execute(_ROW, [desk.rules.name])

    with rival(lambda: LimitHold.objects.select_for_update().get(pk=stale.pk), want):
        assert desk.granted("second")
    assert not LimitHold.objects.filter(pk=stale.pk).exists()


_ROW = "SELECT version FROM celery_guard_limit WHERE name = %s FOR UPDATE"
