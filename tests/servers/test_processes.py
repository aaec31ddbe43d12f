"""The kit's own promises: real workers and relays, on both brokers, and none left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from django.db import transaction

from celery_guard.models import LaneLead
from tests.kit import forked
from tests.kit.ground import ROOT
from tests.kit.processes import Process, environment
from tests.kit.wait import wait_for
from tests.project.shop.models import Mark
from tests.project.shop.tasks import mark

QUIET = {"GUARD_TEST_HOST_RELAY": "0"}


def test_a_worker_runs_what_was_committed(broker, worker):
    """A worker of the kit hosts a relay and runs a job of this test's database and broker."""
    worker()
    with transaction.atomic():
        mark.delay("seen", "here")
    wait_for(lambda: Mark.objects.filter(name="seen").exists(), what="the mark")


def test_a_relay_of_its_own_feeds_a_worker_that_hosts_none(broker, worker, relay):
    """`GUARD_TEST_HOST_RELAY=0` gives a worker without relay; a `guard_relay` does its part."""
    worker(env=QUIET)
    with transaction.atomic():
        mark.delay("seen", "here")
    relay()
    wait_for(lambda: Mark.objects.filter(name="seen").exists(), what="the mark")


@pytest.mark.parametrize("whole", [True, False])
def test_a_killed_worker_leaves_no_process(worker, whole):
    """All that a worker started can be killed with it, and goes by itself when it alone is killed."""
    process = worker()
    assert len(process.members()) > 1
    process.kill(whole=whole)
    wait_for(lambda: not process.members(), what="the worker's children to end")


def relay_of(process: Process, *, but: int = 0) -> psutil.Process:
    """The relay that a worker hosts: the one child of it that leads a session."""

    def looked() -> psutil.Process | None:
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            for child in psutil.Process(process.pid).children():
                if child.pid != but and os.getsid(child.pid) == child.pid:
                    return child
        return None

    found = wait_for(looked, what="the hosted relay")
    assert found is not None
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="else no worker is a fork")
@pytest.mark.parametrize("relay", ["forked", "new"])
def test_a_hosted_relay_is_its_workers_own(worker, relay):
    """Forked or a new interpreter: the worker's child, in its folder; it leads, is replaced, and ends with it."""
    process = worker(env={"GUARD_TEST_RELAY": relay})
    first = relay_of(process)
    assert ("guard_relay" in first.cmdline()) == (relay == "new")
    assert Path(first.cwd()) == ROOT
    leads = LaneLead.objects.filter(owner__isnull=False)
    wait_for(leads.exists, what="a lead")
    first.kill()
    second = relay_of(process, but=first.pid)
    process.kill(whole=False)
    wait_for(lambda: not second.is_running(), what="the relay to end")


TELLING = ("-m", "tests.servers.telling", "one", "two words")
SLEEPER = ["-m", "timeit", "-n1", "-r1", "__import__('time').sleep(600)"]
OWNER = """
import os, pathlib, sys, time
from tests.kit.processes import Process
print(Process(sys.argv[2:], pathlib.Path(sys.argv[1], "log"), os.environ).pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a fork is found by what Linux shows of it")
def test_a_fork_is_what_a_new_interpreter_is(tmp_path, monkeypatch):
    """Words, environment, folder, paths, session, files, signals and exit code; nothing of ours is imported."""
    asked = {**environment(), "GUARD_TEST_SAID": "x"}
    del asked["PATH"]
    fork = Process(TELLING, tmp_path / "fork.log", asked)
    monkeypatch.setattr(forked, "can_be_forked", lambda argv, env: False)
    new = Process(TELLING, tmp_path / "new.log", asked)
    assert (fork.wait(), new.wait()) == (7, 7)
    of_fork, of_new = json.loads(fork.log), json.loads(new.log)
    assert of_fork["environ"].pop("GUARD_TEST_TOKEN") != of_new["environ"].pop("GUARD_TEST_TOKEN")
    assert of_fork == of_new
    assert of_new["imported of ours"] == []


@pytest.mark.skipif(sys.platform != "linux", reason="a fork is found by what Linux shows of it")
def test_what_is_read_at_a_start_is_not_forked():
    """Other code, another clock, several processes' metrics, other paths: a new interpreter each."""
    ours = environment()
    assert forked.can_be_forked(TELLING, ours)
    assert not forked.can_be_forked(("-c", "pass"), ours)
    for name in ("LD_PRELOAD", "PROMETHEUS_MULTIPROC_DIR", "PYTHONPATH"):
        assert not forked.can_be_forked(TELLING, {**ours, name: "/elsewhere"})


def test_a_process_ends_with_whoever_started_it(tmp_path):
    """Killed with -9, a test run leaves no process behind."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), *SLEEPER],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    with owner:
        started = psutil.Process(int(owner.stdout.readline()))
        assert started.is_running()
        owner.kill()
    wait_for(lambda: not started.is_running(), what="its process to end")


def test_a_process_is_killed_at_once_with_all_of_its_own(tmp_path):
    """However early: it can be found from the moment in which it is there."""
    for number in range(5):
        process = Process(SLEEPER, tmp_path / f"{number}.log", environment())
        assert process.members() == [process.pid]
        process.kill()
        assert process.wait() == -signal.SIGKILL
