"""Checks of the databases that hold a ledger."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Tags, register
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from celery_guard.conf import sound_settings
from celery_guard.watch.checks.known import CHECKS, TAG
from celery_guard.watch.checks.project import celery_app
from celery_guard.watch.checks.tasks import guarded_tasks

POSTGRES_LEAST = 150000
_ASK = {
    "postgresql": "SELECT current_setting('transaction_isolation')",
    "mysql": "SELECT @@transaction_isolation",
}
_LINE = {
    "postgresql": '"isolation_level": psycopg.IsolationLevel.READ_COMMITTED',
    "mysql": '"isolation_level": "read committed"',
}


def ledger_aliases() -> dict[str, str]:
    """The databases that hold a ledger, each with who says so."""
    settings = sound_settings()
    if settings is None:
        return {}  # E001 comes first: they may name other databases.
    found = {settings.using: 'CELERY_GUARD["using"]'}
    for task in guarded_tasks(celery_app()):
        if task.guard.using:
            found.setdefault(task.guard.using, f"The task {task.name}")
    return found


def _known(aliases: Iterable[str]) -> list[BaseDatabaseWrapper]:
    return [connections[alias] for alias in aliases if alias in connections.settings]


@register(TAG)
def check_ledgers(app_configs: Any = None, **options: Any) -> list[CheckMessage]:
    """E002 (by OPTIONS), E006, W005: what can be told without asking a database."""
    aliases = ledger_aliases()
    found = [*_unknown(aliases), *_isolation_by_options(aliases)]
    if not django_settings.DEBUG:
        sqlite = (c.alias for c in _known(aliases) if c.vendor == "sqlite")
        found += [CHECKS["W005"].message(alias=alias) for alias in sqlite]
    return found


def _unknown(aliases: dict[str, str]) -> Iterator[CheckMessage]:
    names = list(connections.settings)
    for alias, owner in aliases.items():
        if alias not in names:
            close = difflib.get_close_matches(alias, names, n=1) or names
            yield CHECKS["E006"].message(owner=owner, alias=alias, close=close[0])


def _isolation_by_options(aliases: Iterable[str]) -> Iterator[CheckMessage]:
    for connection in _known(aliases):
        options = connection.settings_dict.get("OPTIONS") or {}
        level = _level_name(options.get("isolation_level"))
        if connection.vendor in _LINE and level not in ("", "READ COMMITTED"):
            yield _isolation(connection, level)


def _isolation(connection: BaseDatabaseWrapper, level: str) -> CheckMessage:
    line = _LINE[connection.vendor]
    return CHECKS["E002"].message(alias=connection.alias, level=level, line=line)


def _level_name(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        # psycopg's levels are numbers; the plain numbers are taken too, as Django does.
        from psycopg import IsolationLevel

        value = IsolationLevel(value).name
    return str(value).replace("_", " ").replace("-", " ").upper()


@register(Tags.database)
def check_databases(
    app_configs: Any = None, databases: Sequence[str] | None = None, **options: Any
) -> list[CheckMessage]:
    """E002, E005: what the databases themselves say; run by ``check --database`` and ``migrate``."""
    aliases = [alias for alias in ledger_aliases() if alias in (databases or ())]
    found: list[CheckMessage] = []
    for connection in _known(aliases):
        if connection.vendor in _ASK:
            found += [*_version(connection), *_isolation_by_server(connection)]
    return found


def _isolation_by_server(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    if (connection.settings_dict.get("OPTIONS") or {}).get("isolation_level") is not None:
        return
    with connection.cursor() as cursor:
        cursor.execute(_ASK[connection.vendor])
        level = _level_name(cursor.fetchone()[0])
    if level != "READ COMMITTED":
        yield _isolation(connection, level)


def _version(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    old = connection.vendor == "postgresql" and connection.pg_version < POSTGRES_LEAST  # type: ignore[attr-defined]
    if old or not connection.features.has_select_for_update_skip_locked:
        version = ".".join(str(part) for part in connection.get_database_version())
        yield CHECKS["E005"].message(
            alias=connection.alias, version=f"{connection.display_name} {version}"
        )
