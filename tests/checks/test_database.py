"""The databases that hold a ledger."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from celery import Celery
from django.db import connection, connections
from psycopg import IsolationLevel
from pytest_django import Settings

Find = Callable[..., dict[str, str]]
Site = Callable[..., Celery]


def options(monkeypatch: pytest.MonkeyPatch, **given: object) -> None:
    """The default database has these OPTIONS besides its own."""
    own = connections["default"].settings_dict
    monkeypatch.setitem(own, "OPTIONS", {**(own.get("OPTIONS") or {}), **given})


@pytest.mark.mariadb
def test_another_isolation_level_in_options_is_an_error(
    site: Site, find: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told without asking the database; the hint is the line for this database."""
    site()
    if connection.vendor == "postgresql":
        options(monkeypatch, isolation_level=IsolationLevel.REPEATABLE_READ)
        line = "psycopg.IsolationLevel.READ_COMMITTED"
    else:
        options(monkeypatch, isolation_level="repeatable read")
        line = '"isolation_level": "read committed"'
    found = find()
    assert set(found) == {"E002"}
    assert "REPEATABLE READ" in found["E002"]
    assert line in found["E002"]


def test_read_committed_by_name_is_well(
    site: Site, find: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saying the default aloud is no fault."""
    site()
    options(monkeypatch, isolation_level=IsolationLevel.READ_COMMITTED)
    assert find() == {}


@pytest.mark.mariadb
@pytest.mark.django_db
def test_the_database_of_the_tests_is_well(site: Site, find: Find) -> None:
    """New enough, and READ COMMITTED by its own word."""
    site()
    assert find(databases=["default"]) == {}


@pytest.mark.django_db(transaction=True)
def test_a_server_that_is_set_to_another_level_is_found(site: Site, find: Find) -> None:
    """Nothing in the settings says so: the database is asked, where a check may ask it."""
    if connection.vendor != "postgresql":
        pytest.skip("Django sets MariaDB's level itself")
    site()
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_isolation = 'repeatable read'")
    try:
        assert find() == {}
        assert set(find(databases=["default"])) == {"E002"}
    finally:
        connection.close()


def test_a_database_without_skip_locked_is_an_error(
    site: Site, find: Find, monkeypatch: pytest.MonkeyPatch, db: None
) -> None:
    """An old server is told with its version."""
    site()
    features = connections["default"].features
    monkeypatch.setattr(features, "has_select_for_update_skip_locked", False)
    found = find(databases=["default"])
    assert set(found) == {"E005"}


def test_an_alias_that_is_not_there_is_an_error(settings: Settings, site: Site, find: Find) -> None:
    """With the nearest one that is."""
    site()
    settings.CELERY_GUARD = {"using": "defualt"}
    found = find()
    assert set(found) == {"E006"}
    assert 'using="default"' in found["E006"]


def test_sqlite_is_for_a_first_look(
    settings: Settings, site: Site, find: Find, sqlite: str
) -> None:
    """Unwise where DEBUG is off, fine on a developer's machine."""
    site()
    settings.CELERY_GUARD = {"using": sqlite}
    assert set(find()) == {"W005"}
    settings.DEBUG = True
    assert find() == {}
