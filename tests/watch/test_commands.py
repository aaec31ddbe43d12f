"""What all commands have in common: they know the site's tasks, and say in a line what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from celery import Celery
from django.core.management import CommandError, call_command
from django.db import connections

from celery_guard.relay.broker_app import load_tasks
from servers.processes import free_port
from tests.kit.processes import Processes
from tests.project.shop.tasks import mark

AWAY = [
    ("guard_limit",),
    ("guard_mode",),
    ("guard_pause", "--list"),
    ("guard_purge", "--dry-run"),
    ("guard_relay", "--once"),
    ("guard_replay", "--list"),
    ("guard_resume", "--all"),
    ("guard_scale",),
    ("guard_stats",),
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "argv",
    [
        ("guard_pause", "--task", mark.name, "--for", "1m", "--reason", "wrong VAT"),
        ("guard_mode", mark.name, "off", "--for", "1m", "--reason", "first steps"),
    ],
)
def test_a_command_knows_the_tasks_that_nobody_has_imported(
    processes: Processes, argv: tuple[str, ...]
) -> None:
    """A site that imports its tasks in views alone has none of them when a command begins."""
    command = processes.python("-m", "tests.project.manage", *argv)
    assert command.wait(timeout=60) == 0, command.log
    assert mark.name in command.log


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Celery]]:
    """`shelf("text")`: an app of its own whose module of tasks holds that text."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[Celery] = []

    def app_with(text: str) -> Celery:
        (tmp_path / "shelf_tasks.py").write_text(text)
        app = Celery("shelf", set_as_current=False, broker="redis://127.0.0.1:1/0")
        app.conf.imports = ("shelf_tasks",)
        made.append(app)
        return app

    yield app_with
    sys.modules.pop("shelf_tasks", None)
    for app in made:
        app.close()


def test_tasks_are_imported_once(shelf: Callable[[str], Celery]) -> None:
    """Also when Django's checks, which Celery runs on the way, come here again."""
    app = shelf("")
    load_tasks(app)
    first = sys.modules.pop("shelf_tasks")
    load_tasks(app)
    assert first
    assert "shelf_tasks" not in sys.modules


def test_a_module_that_raises_is_asked_again(shelf: Callable[[str], Celery]) -> None:
    """Nothing counts as loaded that is not."""
    app = shelf("raise LookupError('no such book')")
    for _ in range(2):
        with pytest.raises(LookupError):
            load_tasks(app)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("argv", AWAY, ids=" ".join)
def test_a_database_that_is_away(argv: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, and a code of its own: no script takes it for an answer."""
    connections["default"].close()
    monkeypatch.setitem(connections["default"].settings_dict, "HOST", "127.0.0.1")
    monkeypatch.setitem(connections["default"].settings_dict, "PORT", str(free_port()))
    try:
        with pytest.raises(CommandError, match="the database can't be asked") as caught:
            call_command(*argv, stdout=StringIO())
    finally:
        connections["default"].close()
    assert caught.value.returncode == 3
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("name", ["guard_pause", "guard_purge", "guard_relay", "guard_stats"])
def test_a_database_that_is_none(name: str) -> None:
    """With the one that was meant."""
    with pytest.raises(CommandError, match="no 'defualt'; did you mean default") as caught:
        call_command(name, "--using", "defualt")
    assert caught.value.returncode == 2


@pytest.mark.parametrize("port", ["-1", "70000"])
def test_a_port_that_is_none(port: str) -> None:
    """As one that is taken: a line."""
    with pytest.raises(CommandError, match=f"cannot listen on 127.0.0.1:{port}"):
        call_command("guard_exporter", "--port", port)


@pytest.mark.parametrize("path", ["no.such:app", "tests.project.celery:nosuch"])
def test_an_app_that_is_none(path: str) -> None:
    """The path as it was given, and what Python says to it."""
    with pytest.raises(CommandError, match=path) as caught:
        call_command("guard_relay", "--once", "--app", path)
    assert caught.value.returncode == 2


@pytest.mark.django_db(transaction=True)
def test_a_lane_that_is_none_is_served_and_told() -> None:
    """It may be a queue outside all lanes; a slip of the pen serves nobody."""
    said = StringIO()
    call_command("guard_relay", "--once", "--lanes", "hihg,low", stderr=said)
    assert said.getvalue().count("served as a queue outside all lanes") == 1
    assert "hihg" in said.getvalue()
