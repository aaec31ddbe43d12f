"""The test site stays as it is: a test that leaves it changed fails, not the tests after it."""

import logging
import os
from dataclasses import dataclass
from typing import Any

import pytest
from celery import _state

from tests.kit import memory
from tests.project.celery import app as celery_app

# Typed as Any: what happens inside an app is nothing Celery's types describe.
app: Any = celery_app

LOGGERS = ("", "celery", "celery_guard", "django")
BOTH = ["default", "other"]
WATCHED = ("_URL", "GUARD_TEST_", "DJANGO_SETTINGS_MODULE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the tests of one process share, as far as Python holds it."""

    conf: dict[str, Any]
    environ: dict[str, str]
    current_app: int
    loggers: dict[str, tuple[bool, bool, int]]


def _look() -> Site:
    return Site(
        conf=dict(app.conf.changes),
        environ={name: value for name, value in os.environ.items() if _is_watched(name)},
        current_app=id(_state.get_current_app()),
        loggers={name: _state_of(logging.getLogger(name)) for name in LOGGERS},
    )


def _state_of(logger: logging.Logger) -> tuple[bool, bool, int]:
    return logger.disabled, logger.propagate, logger.level


def _is_watched(name: str) -> bool:
    # Not all of it: pytest notes the running test in the environment.
    return any(part in name for part in WATCHED)


def _restore(before: Site) -> None:
    app.conf.changes.clear()
    app.conf.changes.update(before.conf)
    for name in filter(_is_watched, list(os.environ)):
        del os.environ[name]
    os.environ.update(before.environ)
    app.set_current()
    for name, (disabled, propagate, level) in before.loggers.items():
        logger = logging.getLogger(name)
        logger.disabled, logger.propagate = disabled, propagate
        logger.setLevel(level)


def _differences(before: Site, after: Site) -> list[str]:
    changed = [
        f"app.conf.{name}"
        for name in before.conf.keys() | after.conf.keys()
        if _value(before, name) != _value(after, name)
    ]
    changed += [
        f"os.environ[{name!r}]"
        for name in before.environ.keys() | after.environ.keys()
        if before.environ.get(name) != after.environ.get(name)
    ]
    changed += [
        f"logging.getLogger({name!r})"
        for name in LOGGERS
        if before.loggers[name] != after.loggers[name]
    ]
    return changed + ["celery.current_app"] * (before.current_app != after.current_app)


def _value(site: Site, name: str) -> object:
    for layer in (site.conf, *app.conf.maps[1:]):
        if name in layer:
            return layer[name]
    return None


def open_both_databases(items: list[pytest.Item]) -> None:
    """Let every test that uses a database use both.

    Some tests declare tasks whose ledger lies on `other`, so this process has two ledgers, and
    whatever looks at all of them looks there too.
    """
    for item in items:
        marker = item.get_closest_marker("django_db")
        fixtures = getattr(item, "fixturenames", ())
        if marker is None and not {"db", "transactional_db"} & set(fixtures):
            continue
        kwargs = marker.kwargs if marker else {}
        item.add_marker(pytest.mark.django_db(**{"databases": BOTH, **kwargs}), append=False)


_before = pytest.StashKey[Site]()


def remember(item: pytest.Item) -> None:
    """Before a test's fixtures: how the site is."""
    app.set_current()
    # Loads a configuration that is still pending: loading it is no change.
    app.conf.get("broker_url")
    item.stash[_before] = _look()
    memory.forget(app)


def compare(item: pytest.Item) -> None:
    """After a test's fixtures: fail the test that left the site changed, and put it right."""
    before = item.stash.get(_before, None)
    if before is not None and (changed := sorted(_differences(before, _look()))):
        _restore(before)
        pytest.fail(f"the test left the site changed: {', '.join(changed)}", pytrace=False)
