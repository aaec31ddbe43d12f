"""Programs of the demo: none outlives it, and one that fails says why."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo.programs import Programs, SetUpError, until
from demo.stage import EXAMPLE

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen({SLEEPER!r})
print("child", child.pid, flush=True)
time.sleep(600)
"""
DEMO = """
import pathlib, sys, time
from demo.programs import Programs
with Programs(pathlib.Path(sys.argv[1]), {}) as programs:
    program = programs.start("sleeper", [sys.executable, "-c", "import time; time.sleep(600)"])
    print(program.process.pid, flush=True)
    time.sleep(600)
"""


def gone(pid: int) -> bool:
    """Whether no process (zombies aside) has this id."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def wait_until_gone(*pids: int) -> None:
    """Wait for the kernel to take them away."""
    until(f"waiting for {pids} to be gone", lambda: all(map(gone, pids)), timeout=10)


def test_killing_a_program_kills_its_children(programs: Programs) -> None:
    """``kill`` leaves neither the program nor what it started."""
    program = programs.start("parent", [sys.executable, "-c", PARENT])
    until("waiting for the child", lambda: program.said("child"), program)
    child = int(program.log.read_text().split()[1])
    program.kill()
    wait_until_gone(program.process.pid, child)


def test_stop_ends_even_what_does_not_listen(programs: Programs) -> None:
    """A program that ignores SIGTERM is killed after the grace."""
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True)"
    program = programs.start("deaf", [sys.executable, "-c", f"{deaf}; time.sleep(600)"])
    until("waiting for the deaf one", lambda: program.said("deaf"), program)
    programs.stop(grace=0.2)
    wait_until_gone(program.process.pid)


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a child of its parent's death"
)
def test_programs_die_with_a_killed_demo(tmp_path: Path) -> None:
    """``kill -9`` of the demo itself leaves nothing running."""
    paths = os.pathsep.join([str(EXAMPLE), str(EXAMPLE.parent / "scripts")])
    demo = subprocess.Popen(
        [sys.executable, "-c", DEMO, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
    )
    assert demo.stdout is not None
    with demo.stdout:
        sleeper = int(demo.stdout.readline())
    demo.send_signal(signal.SIGKILL)
    demo.wait()
    wait_until_gone(sleeper)


def test_a_failed_step_says_what_it_said(programs: Programs) -> None:
    """The one sentence of a failed set-up carries the last words of the program."""
    with pytest.raises(SetUpError, match="exit code 3") as caught:
        programs.run("step", [sys.executable, "-c", "print('no such table'); raise SystemExit(3)"])
    assert "no such table" in str(caught.value)


def test_waiting_ends_when_the_watched_program_does(programs: Programs) -> None:
    """Nobody waits for the time-out of a program that is dead."""
    program = programs.start("short", [sys.executable, "-c", "print('port is taken')"])
    with pytest.raises(SetUpError, match="short ended while waiting for it") as caught:
        until("waiting for it", lambda: False, program, timeout=60)
    assert "port is taken" in str(caught.value)
