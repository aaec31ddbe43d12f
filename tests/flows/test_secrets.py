"""A sensitive argument reaches the body, and nobody else."""

import contextlib
import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord
from django.apps import apps
from django.core.management import CommandError, call_command
from django.test import Client
from prometheus_client import CollectorRegistry, generate_latest

from celery_guard.models import Job
from celery_guard.settle.replay import starting
from celery_guard.settle.replay.choosing import Wanted
from celery_guard.watch.prometheus import GuardCollector
from celery_guard.watch.snapshot import take_snapshot
from tests.flows.confiding import HIDDEN, STATUS, confide, gather, keep, mark_of, pay, tell_last
from tests.flows.staff import hire
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.celery import app
from tests.project.shop.witness import traces
from tests.run.marks import on_database

pytestmark = [*on_database]

SECRET = "swordfish-4111-1111"
BODIES = {("OutboxMessage", "body")}
"""Where it is stored, and has to be; the admin's pages are looked at for it too."""


@contextmanager
def overheard() -> Iterator[list[str]]:
    """What Celery's events tell everybody who listens."""
    told: list[str] = []
    ready = threading.Event()
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(
            connection, handlers={"*": lambda event: told.append(json.dumps(event))}
        )
        receiver.on_consume_ready = lambda *_, **__: ready.set()

        def listen() -> None:
            for _ in receiver.consume(limit=None):
                pass

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        try:
            assert ready.wait(30)
            yield told
        finally:
            receiver.should_stop = True
            thread.join(30)


def stored() -> str:
    """Every value of every row, but for the bodies of messages."""
    return "\n".join(
        f"{model.__name__}.{name}: {value}"
        for model in apps.get_app_config("celery_guard").get_models()
        for row in model._default_manager.values()
        for name, value in row.items()
        if (model.__name__, name) not in BODIES
    )


def pages(client: Client) -> Iterator[str]:
    """All lists of the admin, the dashboard, and the page of every row they show."""
    yield client.get("/admin/celery_guard/").content.decode()
    for model in apps.get_app_config("celery_guard").get_models():
        listed = client.get(f"/admin/celery_guard/{model._meta.model_name}/")
        if listed.status_code != 200:
            continue
        yield listed.content.decode()
        for key in model._default_manager.values_list("pk", flat=True):
            address = f"/admin/celery_guard/{model._meta.model_name}/{key}/change/"
            yield client.get(address).content.decode()


def exports() -> str:
    """What programs are told: the metrics, and the statistics with their dead letters."""
    registry, told = CollectorRegistry(), io.StringIO()
    registry.register(GuardCollector())
    call_command("guard_stats", "--json", "--dead-letters", stdout=told)
    return generate_latest(registry).decode() + told.getvalue()


@pytest.mark.bar
@pytest.mark.timeout(180)
def test_a_secret_is_nowhere_but_in_the_body(
    processes: Processes, scratch: Path, admin_client: Client
) -> None:
    """After a retry, a kill, a failure, its bulk replay, in a chain, a chord and a fold."""
    for number in range(3):
        tell_last.apply_async(("folded", f"{SECRET}-{number}"), **HIDDEN)
    confide.apply_async(("tried", SECRET, ["retry", "die", "fail"]), **HIDDEN)
    steps = [confide.si(f"step-{n}", SECRET).set(**HIDDEN) for n in range(2)]
    chain(*steps).apply_async()
    members = [confide.si(f"member-{n}", SECRET).set(**HIDDEN) for n in range(2)]
    chord(members, gather.s("gathered", SECRET).set(**HIDDEN)).apply_async()
    with overheard() as events:
        worker = hire(processes, concurrency=2, options=["-E"])
        failed = Job.objects.filter(key="confided:tried", state="failed")
        wait_for(failed.exists, timeout=60, what="the failure")
        take_snapshot("default")
        found = [*pages(admin_client), exports(), stored()]
        wanted = Wanted(task=confide.name)
        starting.start("default", wanted, pace="20/s", reason="mended", author="ana")
        open_ones = Job.objects.exclude(state__in=("succeeded", "superseded"))
        wait_for(lambda: not open_ones.exists(), timeout=60, what="all jobs to succeed")
        wait_for(lambda: traces("gathered"), what="the chord's end")
        wait_for(lambda: any("task-succeeded" in told for told in events), what="events")
    assert traces("tried") == [mark_of(SECRET)] * 4, "the worker gets it every time"
    assert traces("folded") == [mark_of(f"{SECRET}-2")]
    for name in ("step-0", "step-1", "member-0", "member-1", "gathered"):
        assert traces(name) == [mark_of(SECRET)], name
    take_snapshot("default")
    found += [*pages(admin_client), exports(), stored(), worker.log, *events]
    for text in found:
        assert SECRET not in text, text[max(0, text.index(SECRET) - 300) :][:600]


COMMANDS = [
    ("guard_stats", "--dead-letters"),
    ("guard_doctor", "--no-canary"),
    ("guard_mode",),
    ("guard_limit",),
    ("guard_scale",),
    ("guard_pause", "--list"),
    ("guard_replay", "--list"),
    ("guard_replay", "--preview", "--task", keep.name),
]


def commands() -> str:
    """What every command that reads says, to people and to programs."""
    told = io.StringIO()
    for name, *options in COMMANDS:
        for kind in ([], ["--json"]):
            before = told.tell()
            # Some end with a status that tells how the site is.
            with contextlib.suppress(SystemExit, CommandError):
                call_command(name, *options, *kind, stdout=told, stderr=told)
            assert told.tell() > before, name
    return told.getvalue()


@pytest.mark.bar
@pytest.mark.timeout(180)
def test_what_a_task_declares_is_nowhere_but_in_the_body(
    processes: Processes, scratch: Path, admin_client: Client, settings: Any
) -> None:
    """Its bodies, the database and a provider quote it; the worker's log, events and stores don't."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "status": STATUS}
    ways = {"quote": 1, "cause": 1, "file": 1, "row": 1, "again": 2, "others": 2, "result": 1}
    for way in ways:
        keep.delay(way, SECRET, [way if way != "result" else ""])
    chain(keep.si("first", SECRET), keep.si("second", secret=SECRET)).apply_async()
    pay.delay("provider", SECRET)
    with overheard() as events:
        worker = hire(processes, concurrency=2, options=["-E"])
        open_ones = Job.objects.filter(state__in=("waiting", "running"))
        wait_for(lambda: not open_ones.exists(), timeout=60, what="all jobs to end")
        wait_for(lambda: any("task-failed" in told for told in events), what="events")
    for name, runs in {**ways, "first": 1, "second": 1, "provider": 1}.items():
        assert traces(name) == [mark_of(SECRET)] * runs, name
    assert set(Job.objects.values_list("state", flat=True)) == {
        "failed",
        "succeeded",
        "reconciling",
    }
    take_snapshot("default")
    found = [*pages(admin_client), exports(), commands(), stored(), worker.log, *events]
    for job in Job.objects.all():
        for kind in ("application/json", "text/html"):
            shown = admin_client.get(f"/guard/{job.public_id}/", headers={"Accept": kind})
            assert shown.status_code == 200
            found.append(shown.content.decode())
    assert "<hidden>" in worker.log
    for text in found:
        assert SECRET not in text, text[max(0, text.index(SECRET) - 300) :][:600]
