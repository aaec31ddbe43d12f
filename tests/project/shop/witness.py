"""What bodies did, as seen from outside the database: lines in files that no rollback takes back."""

import os
import time
from pathlib import Path


def scratch() -> Path:
    """The folder that a test and its workers share."""
    return Path(os.environ["GUARD_TEST_SCRATCH"])


def leave_trace(name: str, text: str = "") -> None:
    """Append one line; a short append is atomic, so any number of processes may write at once."""
    with (scratch() / f"{name}.trace").open("a") as trace:
        trace.write(f"{text}\n")


def traces(name: str) -> list[str]:
    """The lines left under `name`."""
    path = scratch() / f"{name}.trace"
    return path.read_text().splitlines() if path.exists() else []


def wait_until_open(gate: str, timeout: float = 30.0) -> None:
    """Block until the test opens the gate; TimeoutError when it never does."""
    deadline = time.monotonic() + timeout
    while not (scratch() / f"{gate}.open").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"gate {gate} was never opened")
        time.sleep(0.01)


def open_gate(gate: str) -> None:
    """Let everybody pass who waits, or will wait, at this gate."""
    (scratch() / f"{gate}.open").touch()
