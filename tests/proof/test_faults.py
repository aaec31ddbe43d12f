"""Fault points: all are named in one place, and exactly one process dies of an armed one."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from celery_guard import faults
from celery_guard.relay.duties import registered
from tests.kit.ground import ROOT

POINT = re.compile(r'fault_point\(\s*"([a-z_.]+)"')
PASS = "from celery_guard.faults import fault_point; fault_point('run.claimed', 7); print('alive', flush=True)"


def passes(wish: str, *, times: int = 1) -> subprocess.CompletedProcess[str]:
    """A process that passes `run.claimed` under GUARD_FAULT."""
    code = ";".join([PASS] * times)
    environ = {**os.environ, "GUARD_FAULT": wish}
    return subprocess.run(
        [sys.executable, "-c", code], env=environ, cwd=ROOT, capture_output=True, text=True
    )


def test_every_point_is_named_once_and_stands_somewhere() -> None:
    """The list of points is the source's, duties included: a rotation over it leaves nothing out."""
    found = {
        name
        for path in (ROOT / "celery_guard").rglob("*.py")
        for name in POINT.findall(path.read_text())
    }
    assert found | {f"duty.{duty.name}" for duty in registered()} == set(faults.POINTS)


def test_a_named_point_kills_at_the_nth_pass() -> None:
    """`name:2` lets the first pass go; another name lets all pass."""
    assert passes("run.claimed").returncode == -signal.SIGKILL
    second = passes("run.claimed:2", times=3)
    assert (second.returncode, second.stdout) == (-signal.SIGKILL, "alive\n")
    assert passes("run.committed", times=2).returncode == 0


def test_one_process_dies_of_an_armed_point(tmp_path: Path) -> None:
    """The first to pass takes the arm away, says what it had in hand, and dies; the next one lives."""
    faults.arm(tmp_path, "run.claimed")
    assert passes(f"in:{tmp_path}").returncode == -signal.SIGKILL
    assert passes(f"in:{tmp_path}").returncode == 0
    (note,) = tmp_path.glob("*.died")
    told = json.loads(note.read_text())
    assert (told["point"], told["jobs"]) == ("run.claimed", [7])
    assert not faults.disarm(tmp_path, "run.claimed")


def test_an_armed_point_can_be_taken_back(tmp_path: Path) -> None:
    """Nobody dies of it any more, and a point that does not exist can't be armed."""
    faults.arm(tmp_path, "run.claimed")
    assert faults.disarm(tmp_path, "run.claimed")
    assert passes(f"in:{tmp_path}").returncode == 0
    with pytest.raises(KeyError):
        faults.arm(tmp_path, "no.such_point")


def test_points_cost_nothing_without_the_variable() -> None:
    """A process that nobody wants to kill compares once and goes on."""
    assert faults._react is None
    said: list[tuple[str, tuple[int, ...]]] = []
    with faults.reacting(lambda name, jobs: said.append((name, jobs))):
        faults.fault_point("run.claimed", 1)
    faults.fault_point("run.claimed", 2)
    assert said == [("run.claimed", (1,))]
