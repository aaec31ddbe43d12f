"""Whoever asks a command or a script for help gets it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import load_command_class

from tests.kit.ground import ROOT

COMMANDS = sorted(
    path.stem for path in (ROOT / "celery_guard/management/commands").glob("guard_*.py")
)
PROGRAMS = {
    "bench": "benchmarks",
    "canvas": "tests.celerys_own",
    "chaos": "tests.chaos",
    "demo": "demo",
}
"""What has a parser of its own, by the script that starts it."""
HEADS = ("bench", "canvas", "check", "lock", "test")
"""Scripts that say themselves what they are for, without their environment."""


def asked(*argv: str | Path) -> str:
    """What it prints when it is asked for help."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "scripts", ROOT / "example_project")))
    done = subprocess.run(
        [*argv, "--help"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_gives_help(name: str) -> None:
    """What it does, and each option with a word on it."""
    command = load_command_class("celery_guard", name)
    parser = command.create_parser("manage.py", name)
    assert " ".join(command.help.split()[:3]) in parser.format_help()
    assert [action.dest for action in parser._actions if not action.help] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_help(name: str) -> None:
    """Its usage, under the name of the script."""
    assert f"scripts/{name}" in asked(sys.executable, "-m", PROGRAMS[name]).splitlines()[0]


@pytest.mark.parametrize("name", HEADS)
def test_a_script_gives_help(name: str, tmp_path: Path) -> None:
    """What stands at its head, in a clone where nothing was made yet; and nothing is made."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    for file in (name, "_help"):
        (folder / file).write_bytes((ROOT / "scripts" / file).read_bytes())
    assert f"scripts/{name}" in asked("bash", folder / name)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["_help", name]


def test_every_script_is_asked() -> None:
    """A script that is added is asked for help here too."""
    executable = {
        path.name
        for path in (ROOT / "scripts").iterdir()
        if path.is_file() and os.access(path, os.X_OK)
    }
    assert executable == {*PROGRAMS, *HEADS}
