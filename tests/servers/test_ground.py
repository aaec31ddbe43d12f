"""The test site itself stands on real servers."""

import pytest
from django.db import connections

from tests.project.shop.models import Mark


@pytest.mark.mariadb
@pytest.mark.django_db(databases=["default", "other"])
def test_two_databases_answer():
    """Both aliases are databases of their own."""
    Mark.objects.create(name="here")
    assert Mark.objects.using("other").count() == 0
    first, second = (connections[alias].settings_dict["NAME"] for alias in ("default", "other"))
    assert first != second


@pytest.mark.parametrize("turn", [1, 2])
def test_redis_is_empty_for_every_test(redis_client, turn):
    """What one test wrote is gone for the next."""
    assert redis_client.dbsize() == 0
    redis_client.set("left", turn)
