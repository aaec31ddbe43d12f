"""Time limits, transactions and leases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from celery import Celery
from pytest_django import Settings

from celery_guard.backends import GuardedBackend
from celery_guard.checks import CHECKS
from celery_guard.task import GuardedTask

Find = Callable[..., dict[str, str]]
Site = Callable[..., Celery]


def task_of(app: Celery, **options: object) -> None:
    """A guarded task of ``app`` alone, declared with ``options``."""

    @app.task(
        base=GuardedTask,
        name="shop.issue",
        key="issue:{number}",
        shared=False,
        lazy=False,
        **options,
    )
    def issue(number: int) -> None: ...


def test_a_soft_limit_that_never_comes(site: Site, find: Find) -> None:
    """For all tasks: at or above the hard one."""
    site(task_soft_time_limit=20, task_time_limit=20)
    found = find()
    assert set(found) == {"W003"}
    assert "CELERY_TASK_SOFT_TIME_LIMIT = 18" in found["W003"]


def test_a_tasks_own_soft_limit_that_never_comes(site: Site, find: Find) -> None:
    """For one task, named."""
    task_of(site(), soft_time_limit=25, time_limit=10)
    found = find()
    assert set(found) == {"W003"}
    assert "shop.issue" in found["W003"]
    assert "soft_time_limit=9" in found["W003"]


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"soft_time_limit": 31}, {"W006"}),
        ({"soft_time_limit": 31, "atomic": False}, set()),
        ({"soft_time_limit": 30}, set()),
        ({}, set()),
    ],
)
def test_a_long_transaction_is_unwise(
    site: Site, find: Find, declared: dict[str, object], said: set[str]
) -> None:
    """An open transaction holds back vacuum for the whole ledger."""
    task_of(site(), **declared)
    assert set(find()) == said


def test_the_sites_limit_holds_for_tasks_without_one(site: Site, find: Find) -> None:
    """Celery's own setting counts, the hard limit too."""
    task_of(site(task_time_limit=600))
    assert set(find()) == {"W006"}


@pytest.mark.parametrize(
    ("modes", "declared", "said"),
    [
        ({"shop.isue": "off"}, {}, {"W015"}),
        ({"shop.issue": "off"}, {}, set()),
        ({"shop.issue": "compare"}, {}, {"E010"}),
        ({"shop.issue": "compare"}, {"comparable": True}, set()),
        ({"celery_guard.canary": "off"}, {}, {"W015"}),
    ],
)
def test_modes_fit_their_tasks(
    settings: Settings,
    site: Site,
    find: Find,
    modes: dict[str, str],
    declared: dict[str, object],
    said: set[str],
) -> None:
    """A name that is nobody's, and a body that was not made to run twice."""
    settings.CELERY_GUARD = {"rollout": {"modes": modes}}
    task_of(site(), **declared)
    found = find()
    assert set(found) == said
    assert "shop.isue" not in modes or "'shop.issue'" in found["W015"]


def test_tasks_that_cannot_be_imported(
    settings: Settings, site: Site, find: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which error it is; and no name is called nobody's that may be one of theirs."""
    (tmp_path / "broken_tasks.py").write_text("raise LookupError('no such book')")
    monkeypatch.syspath_prepend(tmp_path)
    settings.CELERY_GUARD = {"rollout": {"modes": {"broken_tasks.read": "off"}}}
    site(imports=("broken_tasks",))
    found = find()
    assert set(found) == {"W017"}
    assert "LookupError: no such book" in found["W017"]


def test_a_fallback_in_a_lane_that_may_not(settings: Settings, site: Site, find: Find) -> None:
    """Said before the outage, not in it."""
    task_of(site(), lane="low", fallback=True)
    assert "'low'" in find()["W016"]
    settings.CELERY_GUARD = {"rollout": {"fallback": {"lanes": ["low"]}}}
    assert find() == {}


def test_a_lease_that_nothing_keeps_up(
    settings: Settings, site: Site, find: Find, sqlite: str
) -> None:
    """SQLite has no heartbeats: a lease is a deadline there."""
    settings.DEBUG = True
    settings.CELERY_GUARD = {"using": sqlite, "run": {"lease": 20}}
    app = site()
    task_of(app, soft_time_limit=25)
    found = find()
    assert set(found) == {"W011"}
    assert "lease=35" in found["W011"]


def test_a_tasks_backend_names_every_fault() -> None:
    """Queues that are no lanes, and options that it does not have."""
    params = {"QUEUES": ["default", "mails"], "OPTIONS": {"lane": 1, "lanes": {"x": "lowest"}}}
    (fault,) = GuardedBackend("second", params).check()
    assert fault.id == CHECKS["E011"].full_id
    for told in ("second", "'mails' is no lane", "no 'lane'", "'x' is no lane"):
        assert told in fault.msg
    assert GuardedBackend("default", {}).check() == []
