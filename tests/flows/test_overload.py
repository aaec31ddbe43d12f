"""Visitors at twice the rate of service; ``GUARD_TEST_OVERLOAD=600`` for ten minutes of it."""

import os
import socket
import statistics
import time
from pathlib import Path

import pytest

from celery_guard.models import Job, Reservation, WorkerPresence
from tests.flows.overload.settings import DEPTHS, OBJECTIVE
from tests.flows.overload.shopfront import SERVICE
from tests.flows.overload.visitors import Visitors
from tests.flows.overload.watching import Watch
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.run.marks import on_database

SECONDS = float(os.environ.get("GUARD_TEST_OVERLOAD", "15"))
LONG = SECONDS >= 300
SLOTS, THREADS = 8, 8
ARRIVALS = 2 * SLOTS / SERVICE
MIX = {"high": 0.1, "medium": 0.15, "low": 0.75}
SITE = {"DJANGO_SETTINGS_MODULE": "tests.flows.overload.settings"}

pytestmark = [*on_database, pytest.mark.timeout(400 + 3 * SECONDS)]


def _open_shop(processes: Processes) -> int:
    argv = ["-m", "celery", "-A", "tests.flows.overload.site", "worker", "-l", "INFO"]
    argv += ["--without-gossip", "--without-mingle", "-c", str(SLOTS)]
    processes._start("worker", argv, {**SITE, "PGAPPNAME": "worker"})
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = int(found.getsockname()[1])
    shop = ("-m", "tests.flows.overload.web", str(port), str(THREADS))
    processes.python(*shop, env={**SITE, "PGAPPNAME": "web"})
    wait_for(lambda: _is_open(port), timeout=60, what="the shop to open")
    wait_for(WorkerPresence.objects.exists, what="the worker's report")
    return port


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _waits(lane: str) -> list[float]:
    times = Job.objects.filter(lane=lane).values_list("first_due_at", "started_at")
    return [(started - due).total_seconds() for due, started in times if started]


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[-1] if len(values) > 1 else 0.0


def _print(visitors: Visitors, watch: Watch, begun: float) -> None:
    last = max(Job.objects.values_list("finished_at", flat=True))
    print(  # noqa: T201 - the figures, for whoever runs it with -s
        f"\n{len(visitors.answers) / SECONDS:.1f} visitors a second for {SECONDS:.0f} s, "
        f"{Job.objects.filter(finished_at__lt=visitors.left_at).count() / SECONDS:.1f} served; "
        f"drained after {last.timestamp() - begun:.0f} s; connections at most "
        f"{dict(watch.connected)} in {watch.looks} looks; load {os.getloadavg()[0]:.1f}"
    )
    for lane, told in visitors.probes.items():
        came = [answer for answer in visitors.answers if answer.lane == lane]
        said = sorted(answer.after for answer in came if answer.after) or [0]
        waits = _waits(lane)
        print(  # noqa: T201
            f"{lane}: {sum(a.status == 202 for a in came)} of {len(came)} let in, at most "
            f"{watch.waiting[lane]} of {DEPTHS[lane]} waited, p50 {statistics.median(waits):.1f} s, "
            f"p99 {_p99(waits):.1f} s; probes in by try 1, 2, 3: "
            f"{[sum(a.status == 202 for p in told for a in p[:n]) for n in (1, 2, 3)]} of {len(told)}; "
            f"Retry-After {said[0]} to {said[-1]} s, median {said[len(said) // 2]}; "
            f"answered within {_p99([a.took for a in came]):.2f} s (p99)"
        )


@pytest.mark.bar
def test_twice_of_what_can_be_done(processes: Processes, scratch: Path) -> None:
    """Depth stays at its cap, refusals name their time, and it all drains without a hand."""
    visitors = Visitors(_open_shop(processes), {n: ARRIVALS * part for n, part in MIX.items()})
    with Watch() as watch:
        begun = time.time()
        visitors.come(SECONDS, probe_every=SECONDS / 100 if LONG else SECONDS)
        done = Job.objects.exclude(state="succeeded")
        wait_for(lambda: not done.exists(), timeout=120, what="all that was let in")
    _print(visitors, watch, begun)
    assert {lane: watch.waiting[lane] <= most for lane, most in DEPTHS.items()} == dict.fromkeys(
        DEPTHS, True
    )
    refused = [answer for answer in visitors.all() if answer.status != 202]
    assert refused
    assert {answer.status for answer in refused} == {503}
    assert all(answer.after is not None and 1 <= answer.after <= 120 for answer in refused)
    # One for each thread and one that wakes the relay; one for each child and its heartbeat.
    assert watch.connected["web"] <= THREADS + 1
    assert watch.connected["worker"] <= 2 * SLOTS + 4
    assert not Reservation.objects.exists()
    let_in = sum(answer.status == 202 for answer in visitors.all())
    assert Job.objects.filter(state="succeeded", starts=1).count() == let_in
    if LONG:
        assert _p99(_waits("high")) <= OBJECTIVE
        probes = [told for lane in visitors.probes.values() for told in lane]
        assert sum(told[-1].status == 202 for told in probes) >= 0.9 * len(probes)
