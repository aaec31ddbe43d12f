"""Checks are run for Celery apps of the tests' own, so that no setting of the site leaks in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

Found = dict[str, str]
"""What was found: the message and the hint by the check's id."""


@pytest.fixture(autouse=True)
def _no_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that other tests have marked do not count."""
    from celery_guard.watch.checks import project

    monkeypatch.setattr(project, "MARKED", [])


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Celery]]:
    """`site(task_serializer="json")`: the site has this Celery app with this configuration."""
    from celery_guard.enqueue.install import install
    from celery_guard.watch.checks import project

    made: list[Celery] = []

    def configure(*, guarded: bool = True, **configuration: Any) -> Celery:
        app = Celery("shop", set_as_current=False, broker="redis://127.0.0.1:1/0")
        app.conf.update(configuration)
        # Without the shared tasks of this process, which would have their say.
        app.finalized = True
        if guarded:
            install(app)
        monkeypatch.setattr(project, "load_app", lambda: app)
        made.append(app)
        return app

    yield configure
    for app in made:
        app.close()


@pytest.fixture
def find() -> Callable[..., Found]:
    """`find()`: everything that the guard's checks say now; `databases=` lets them ask those."""
    from django.core.checks import Tags, run_checks

    from celery_guard.watch.checks.known import TAG

    def run(databases: list[str] | None = None) -> Found:
        tags = [TAG, Tags.database] if databases else [TAG]
        found = run_checks(tags=tags, databases=databases)
        ours = [message for message in found if str(message.id).startswith("celery_guard.")]
        return {
            str(message.id).removeprefix("celery_guard."): f"{message.msg} | {message.hint}"
            for message in ours
        }

    return run


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[str]:
    """The alias of one more database, a SQLite file."""
    from django.db import connections

    alias = "small"
    connections.settings[alias] = {
        **connections.settings["default"],
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(tmp_path / "small.sqlite3"),
        "OPTIONS": {},
    }
    yield alias
    connections[alias].close()
    del connections[alias]
    del connections.settings[alias]
