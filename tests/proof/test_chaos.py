"""The short form of `scripts/chaos`: a handful of deaths on each database and broker."""

import json
import os
import subprocess
import sys

import pytest

from celery_guard.faults import POINTS
from tests.chaos.stage import PAIRS
from tests.kit.ground import ROOT, must_be_whole

CHOSEN = (
    "outbox.written",
    "relay.marked",
    "relay.published",
    "run.claimed",
    "run.finishing",
    "run.committed",
    "settle.answered",
)
# The fourth is made of halves of the others: the long form is enough for it.
SHORT = sorted(PAIRS.keys() - {"mariadb-rabbitmq"})
OURS = ("GUARD_", "REDIS_URL", "DJANGO_SETTINGS_MODULE")


def chaos(*options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A run with a Redis of its own: kombu's own keys there are shared by all who use one."""
    clean = {n: v for n, v in os.environ.items() if not n.startswith(OURS)}
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "scripts", ROOT / "example_project")))
    return subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--json", *options],
        env={**clean, "PYTHONPATH": paths, **environ},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.mark.bar
@pytest.mark.timeout(300)
@pytest.mark.parametrize("pair", SHORT)
def test_nothing_is_lost_or_doubled(pair: str) -> None:
    """A web process, relays and workers die once at each chosen point: every effect is there once."""
    ran = chaos("--pair", pair, "--kills", str(len(CHOSEN)), "--points", ",".join(CHOSEN))
    if ran.returncode == 2 and not must_be_whole():
        pytest.skip(ran.stderr.strip().splitlines()[-1])
    assert ran.stdout, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert (told["lost"], told["duplicated"], told["faults"]) == (0, 0, []), ran.stdout
    assert ran.returncode == 0, ran.stderr
    # Several are armed at once, so a point can come twice before another one's turn.
    assert told["kills"] >= len(CHOSEN)
    assert told["jobs"] > 0


@pytest.mark.bar
@pytest.mark.timeout(300)
def test_nothing_is_lost_in_outages() -> None:
    """A frozen worker, a wiped broker, a wrong clock: it comes back by itself."""
    names = "worker-frozen,broker-wiped,clock-behind"
    ran = chaos("--table", names, "--windows", "1")
    if ran.returncode == 2 and not must_be_whole():
        pytest.skip(ran.stderr.strip().splitlines()[-1])
    assert ran.stdout, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert (told["lost"], told["duplicated"]) == (0, 0), ran.stdout
    # A rate over so short a time says little: that is for the long form.
    assert [row["name"] for row in told["rows"] if row["recovered_s"] is None] == []
    assert told["jobs"] > 0


def test_a_point_that_does_not_exist_is_refused() -> None:
    """A run that kills nobody would prove nothing."""
    ran = chaos("--points", "no.such_point", "--kills", "1")
    assert ran.returncode == 2
    assert "no.such_point" in ran.stderr
    assert set(CHOSEN) <= POINTS.keys()


def test_a_disturbance_that_does_not_exist_is_refused() -> None:
    """Nor would a table that disturbs nobody."""
    ran = chaos("--table", "full-moon")
    assert ran.returncode == 2
    assert "full-moon" in ran.stderr
