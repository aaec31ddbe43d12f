"""The doctor's table: each misconfiguration that is planted is named, with the line that mends it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.core import mail
from django.db import connection, connections
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone
from psycopg import IsolationLevel

from celery_guard.jobs.states import State
from celery_guard.models import Duty, LaneLead, WorkerPresence
from celery_guard.relay.duties import registered
from celery_guard.watch.checks import project
from servers.processes import free_port
from tests.kit.brokers import celery_conf, on_broker
from tests.project.shop.tasks import mark
from tests.relay.ledger import queue_of
from tests.watch.doctor.test_guard_doctor import doctor
from tests.watch.doctor.test_parts import lead_all, serve
from tests.watch.rows import aged, ended

pytestmark = [pytest.mark.bar, pytest.mark.django_db]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What can be made wrong, and is put right after the test."""

    patch: pytest.MonkeyPatch
    settings: Any
    stack: contextlib.ExitStack

    def celery(self, **changes: object) -> None:
        """Other settings of Celery; in Django's test environment some of them would be well."""
        self.patch.delattr(mail, "outbox")
        self.stack.enter_context(celery_conf(**changes))

    def guard(self, **changes: object) -> None:
        """Other settings of the guard."""
        self.settings.CELERY_GUARD = {**self.settings.CELERY_GUARD, **changes}

    def options(self, **changes: object) -> None:
        """Other OPTIONS of the database."""
        own = connections["default"].settings_dict
        self.patch.setitem(own, "OPTIONS", {**(own.get("OPTIONS") or {}), **changes})

    def metrics_elsewhere(self) -> None:
        """django-prometheus in many processes, and no page of the guard's."""
        apps = [*self.settings.INSTALLED_APPS, "django_prometheus"]
        self.patch.setattr(project.settings, "INSTALLED_APPS", apps)
        self.patch.setenv("PROMETHEUS_MULTIPROC_DIR", "/nowhere")
        self.settings.ROOT_URLCONF = "tests.checks.no_urls"

    def clock(self, seconds: float) -> None:
        """The clock of this machine is ahead."""
        ahead = dt.datetime.now(dt.UTC) + timedelta(seconds=seconds)
        self.stack.enter_context(time_machine.travel(ahead, tick=True))

    def sql(self, statement: str) -> None:
        """Something done to the database by hand; undone with the test's transaction."""
        with connection.cursor() as cursor:
            cursor.execute(statement)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Site]:
    """A site on which nothing is wrong but what this process' other tests declare."""
    lead_all()
    serve("high", "medium", "low")
    for duty in registered():
        Duty.objects.create(name=duty.name, done_at=timezone.now())
    with contextlib.ExitStack() as stack:
        yield Site(patch=monkeypatch, settings=settings, stack=stack)


def old(seconds: float) -> dt.datetime:
    """A time that long ago."""
    return timezone.now() - timedelta(seconds=seconds)


PLANTED: dict[str, tuple[Callable[[Site], object], str, str]] = {
    "pickle is accepted": (
        lambda s: s.celery(accept_content=["json", "pickle"]),
        "check E004",
        "CELERY_ACCEPT_CONTENT = ['json']",
    ),
    "tasks are pickled": (
        lambda s: s.celery(task_serializer="pickle"),
        "check E004",
        "CELERY_TASK_SERIALIZER = 'json'",
    ),
    "a short visibility time-out": (
        lambda s: s.celery(broker_transport_options={"visibility_timeout": 1}),
        "check W002",
        "CELERY_BROKER_TRANSPORT_OPTIONS",
    ),
    "a soft limit at the hard one": (
        lambda s: s.celery(task_soft_time_limit=20, task_time_limit=20),
        "check W003",
        "CELERY_TASK_SOFT_TIME_LIMIT = 18",
    ),
    "eager tasks": (
        lambda s: s.celery(task_always_eager=True),
        "check W001",
        "CELERY_TASK_ALWAYS_EAGER = False",
    ),
    "a misspelt setting": (
        lambda s: s.guard(outbox={"captrue": "all"}),
        "check E001",
        "Correct the setting CELERY_GUARD",
    ),
    "a hook that is nowhere": (
        lambda s: s.guard(status={"owner": "no.such"}),
        "check E008",
        "Write the import path",
    ),
    "limits of tenants that are nowhere": (
        lambda s: s.guard(tenants={"limits": "no.such"}),
        "check E009",
        "Write the import path",
    ),
    "everything is captured": (
        lambda s: s.guard(outbox={"capture": "all"}),
        "check W004",
        "SILENCED_SYSTEM_CHECKS",
    ),
    "keys that are forgotten too soon": (
        lambda s: s.guard(retention={"keys": 86400}),
        "check W009",
        '"keys": 2592000',
    ),
    "a mode of nobody": (
        lambda s: s.guard(rollout={"modes": {"shop.isue": "off"}}),
        "check W015",
        "take the line out",
    ),
    "a comparison of what may not run twice": (
        lambda s: s.guard(rollout={"modes": {mark.name: "compare"}}),
        "check E010",
        "comparable=True",
    ),
    "another isolation level": (
        lambda s: s.options(isolation_level=IsolationLevel.REPEATABLE_READ),
        "check E002",
        "READ_COMMITTED",
    ),
    "marked views without the middleware": (
        lambda s: s.patch.setattr(project, "MARKED", ["orders.views.place"]),
        "check W014",
        "celery_guard.middleware.AdmissionMiddleware",
    ),
    "metrics that leave the lanes out": (
        lambda s: s.metrics_elsewhere(),
        "check W007",
        'include("celery_guard.urls")',
    ),
    "no relay": (
        lambda s: LaneLead.objects.filter(lane="medium").delete(),
        "lane medium",
        "guard_relay",
    ),
    "a queue that nobody consumes": (
        lambda s: WorkerPresence.objects.update(queues=[queue_of("high"), queue_of("medium")]),
        "lane low",
        f"-Q {queue_of('low')}",
    ),
    "upkeep that stands still": (
        lambda s: Duty.objects.filter(name="sweep").update(done_at=old(300)),
        "upkeep",
        "",
    ),
    "a migration that is missing": (
        lambda s: MigrationRecorder.Migration.objects.filter(name="0002_databases").delete(),
        "database default",
        "migrate celery_guard",
    ),
    "a function that is missing": (
        lambda s: s.sql("ALTER FUNCTION celery_guard_insert_1 RENAME TO elsewhere"),
        "database default",
        "Restore the whole schema",
    ),
    "a clock that is ahead": (lambda s: s.clock(30), "database default", ""),
    "more workers than connections": (
        lambda s: WorkerPresence.objects.update(slots=4000),
        "database default",
        "",
    ),
    "a broker that is away": (
        lambda s: s.stack.enter_context(on_broker(f"redis://127.0.0.1:{free_port()}/0")),
        "broker",
        "",
    ),
    "a Redis that is away": (
        lambda s: s.guard(redis=f"redis://127.0.0.1:{free_port()}/0"),
        "redis",
        "",
    ),
    "jobs that are due and stay": (lambda s: aged("high", seconds=300), "outbox of high", ""),
    "workers of older code": (
        lambda s: ended(state=State.FAILED, reason="unknown_task"),
        "dead letters",
        "restart the workers",
    ),
}


def findings() -> dict[tuple[str, str], str]:
    """What the command says is not well, and its hint; its exit code is that of the worst."""
    printed, code = doctor("--no-canary", "--json")
    bad = [finding for finding in json.loads(printed)["findings"] if finding["level"] != "ok"]
    assert code == any(finding["level"] == "fault" for finding in bad)
    return {(finding["what"], finding["says"]): finding["hint"] for finding in bad}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_named_with_the_line_that_mends_it(name: str, site: Site) -> None:
    """Nothing else is named besides, and the hint says what to write or to run."""
    plant, what, line = PLANTED[name]
    before = findings()
    plant(site)
    found = {said: hint for said, hint in findings().items() if said not in before}
    # Tasks of other tests in this process may have a word to say under the same name, and some of
    # them have a ledger on `other`, with the same clock.
    assert {said[0].replace("database other", "database default") for said in found} == {what}
    assert all(found.values())
    assert any(line in hint for hint in found.values())


def test_the_table_is_long() -> None:
    """At least twenty ways to get it wrong."""
    assert len(PLANTED) >= 20
