"""A database that is away while a worker has a message in its hands."""

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connection, connections

from celery_guard import events
from celery_guard.models import Job
from tests.kit.wait import wait_for
from tests.project.shop import tasks
from tests.project.shop.models import Mark
from tests.run.delivery import job_of, receive, send, state_of
from tests.run.marks import on_database
from tests.run.tasks import ACTIONS, in_body

pytestmark = on_database


class Door:
    """Shuts the test's database to new connections and ends the open ones, or opens it again."""

    def __init__(self) -> None:
        settings = connection.settings_dict
        self.name = settings["NAME"]
        self.admin = psycopg.connect(
            host=settings["HOST"],
            port=settings["PORT"],
            user=settings["USER"],
            password=settings["PASSWORD"] or None,
            dbname="template1",
            autocommit=True,
        )

    def shut(self) -> None:
        """As a server that goes away."""
        name = psycopg.sql.Identifier(self.name)
        self.admin.execute(
            psycopg.sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false").format(name)
        )
        self.admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [self.name]
        )

    def open(self) -> None:
        """As a server that comes back."""
        name = psycopg.sql.Identifier(self.name)
        self.admin.execute(
            psycopg.sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS true").format(name)
        )


@pytest.fixture
def door() -> Iterator[Door]:
    """The door of this test's database, open again at the end."""
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL can shut one database")
    found = Door()
    try:
        yield found
    finally:
        found.open()
        found.admin.close()
        connections.close_all()


@pytest.fixture
def away() -> Iterator[threading.Event]:
    """Set as soon as somebody notices that the database is away."""
    noticed = threading.Event()

    def listen(event: events.Event) -> None:
        if event.name == "run.database_away":
            noticed.set()

    events.receive(listen)
    yield noticed
    events._receivers.remove(listen)


def _receive_elsewhere(message: dict[str, object], answers: list[str]) -> threading.Thread:
    def run() -> None:
        answers.append(state_of(receive(message)))
        connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.bar
def test_a_claim_waits_in_place_for_the_database(
    door: Door, away: threading.Event, scratch: Path
) -> None:
    """The message is neither failed nor dropped: when the database is back the body runs, once."""
    message = send(job_of(tasks.mark.delay("a")))
    connections.close_all()
    door.shut()
    answers: list[str] = []
    thread = _receive_elsewhere(message, answers)
    assert away.wait(20)
    door.open()
    thread.join(30)
    assert answers == ["SUCCESS"]
    job = Job.objects.get()
    assert (job.state, job.starts, Mark.objects.count()) == ("succeeded", 1, 1)


@pytest.mark.bar
def test_an_end_that_could_not_be_written_is_left_to_the_rescue(door: Door, scratch: Path) -> None:
    """The database goes away in mid-body and stays away: Celery is told nothing, the row stays owed."""
    job = job_of(in_body.delay("a"))
    message = send(job)
    ACTIONS["a"] = door.shut
    answers: list[str] = []
    thread = _receive_elsewhere(message, answers)
    wait_for(lambda: not thread.is_alive(), timeout=60, what="the attempt to give up")
    door.open()
    connections.close_all()
    job.refresh_from_db()
    assert answers == ["IGNORED"]
    assert (job.state, job.failures, Mark.objects.count()) == ("running", 0, 0)


def test_a_short_outage_in_mid_body_is_a_transient_failure(door: Door, scratch: Path) -> None:
    """Rolled back by the server, written down on a new connection, tried again."""
    job = job_of(in_body.delay("a"))

    def blink() -> None:
        door.shut()
        door.open()

    ACTIONS["a"] = blink
    assert state_of(receive(send(job))) == "RETRY"
    job.refresh_from_db()
    assert (job.state, job.reason, job.failures) == ("waiting", "retry", 1)
