"""The whole demo, run as a user runs it: in a process of its own, on servers of its own."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from demo.stage import EXAMPLE
from tests.kit.processes import Process
from tests.kit.wait import wait_for

SERVERS = {"DATABASE_URL", "REDIS_URL", "AMQP_URL", "MARIADB_URL", "DJANGO_SETTINGS_MODULE"}


def environment(**extra: str) -> dict[str, str]:
    """The environment of a user who names no servers."""
    # A server that is named counts only where the finder may look beyond the wheels.
    gone = SERVERS | {"GUARD_TEST_SERVERS"} if SERVERS & extra.keys() else SERVERS
    kept = {name: value for name, value in os.environ.items() if name not in gone}
    paths = os.pathsep.join([str(EXAMPLE), str(EXAMPLE.parent / "scripts")])
    return {**kept, "PYTHONPATH": paths, **extra}


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for temporary files that PostgreSQL's account can walk to, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="demo-test-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def started() -> Iterator[list[Process]]:
    """Demos that are ended with the test; put them in here."""
    demos: list[Process] = []
    yield demos
    for demo in demos:
        demo.kill()


def run(place: Path, started: list[Process], *options: str, **extra: str) -> Process:
    """Start the demo; its output, and its own temporary files, are kept with the test's."""
    env = environment(TMPDIR=str(place), **extra)
    demo = Process(["-m", "demo", *options], place / "demo.log", env)
    started.append(demo)
    return demo


def command_of(pid: int) -> str:
    """What runs as this process, in which state, below which parent."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return f"{pid}: gone"
    return f"{pid} ({state[0]}, child of {state[1]}): {words}"


@pytest.mark.bar
@pytest.mark.timeout(240)
def test_nothing_is_lost_and_nothing_happens_twice(place: Path, started: list[Process]) -> None:
    """One invoice, one mail and one charge an order, in spite of a kill -9 and a wiped broker.

    Counted at the invoice table, the mail catcher and the payment provider (IN-02, RV-01).
    """
    demo = run(place, started, "--json", "--orders", "60")
    wait_for(lambda: not demo.alive, timeout=220, what="the demo")
    told = json.loads(demo.log.splitlines()[-1])
    assert told["orders"] == told["invoices"] == told["mails"] == told["charges"] == 60, demo.log
    assert (told["lost"], told["duplicated"], told["unfinished"]) == (0, 0, 0), demo.log
    assert told["stale_products"] == 0
    assert (told["kills"], told["wipes"]) == (1, 1)
    assert told["messages_wiped"] > 0, "the wipe met an empty broker and proved nothing"
    assert told["repeats_suppressed"] > 0, "no answer was lost, so nothing was proved"
    assert 0 < told["commit_to_effect_p50_ms"] <= told["commit_to_effect_p95_ms"]
    assert demo.stop() == 0
    wait_for(lambda: not demo.members(), what="no process of the demo")
    assert not list(place.glob("celery-guard-*"))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_demo_leaves_nothing_running(
    place: Path, started: list[Process], number: signal.Signals
) -> None:
    """Ctrl-C, a termination and a kill -9 all take servers and processes with them."""
    demo = run(place, started)
    wait_for(lambda: "Payment provider" in demo.log, timeout=150, what="servers and database")
    wait_for(lambda: len(demo.members()) > 5, what="the processes")
    demo.signal(number)
    try:
        # Dropping its database waits for a checkpoint, on a busy server for long.
        wait_for(lambda: not demo.members(), timeout=150, what="no process of the demo")
    except AssertionError as error:
        left = "\n".join(command_of(member) for member in demo.members())
        raise AssertionError(f"{error}\n{left}\n{demo.log}") from None
    # A process loses its environment, and so its mark, a moment before it is gone.
    wait_for(lambda: not demo.alive, what="the end of the demo")
    if number is not signal.SIGKILL:
        assert demo.stop() == 130


def test_a_failed_set_up_is_one_sentence(place: Path, started: list[Process]) -> None:
    """A server that can't be reached ends the demo with exit code 2 and no traceback."""
    demo = run(place, started, REDIS_URL="redis://127.0.0.1:1/0")
    wait_for(lambda: not demo.alive, timeout=120, what="the demo")
    assert demo.stop() == 2
    assert "REDIS_URL" in demo.log
    assert "Traceback" not in demo.log


def test_a_redis_in_use_is_not_wiped(
    place: Path, started: list[Process], redis_client: "redis.Redis[bytes]"
) -> None:
    """The demo wipes its broker, so it refuses a Redis database that holds something."""
    redis_client.set("precious", "1")
    demo = run(place, started, REDIS_URL=os.environ["REDIS_URL"])
    wait_for(lambda: not demo.alive, timeout=120, what="the demo")
    assert demo.stop() == 2
    assert "not empty" in demo.log
    assert redis_client.get("precious") == b"1"


@pytest.mark.parametrize("options", [["--orders", "0"], ["--orders", "many"], ["--jason"]])
def test_wrong_options_are_explained(options: list[str]) -> None:
    """Nothing is started for a command that was mistyped."""
    result = subprocess.run(
        [sys.executable, "-m", "demo", *options],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "usage: scripts/demo" in result.stderr
