"""Every page and every hot statement beside `done` finished jobs, in a database that holds them.

A figure is in ms of processor: this process' and its PostgreSQL session's together, which a machine
that others use does not change. `… by the clock` is what passed meanwhile; `… queries` is how many
statements a page made, the session's and the user's among them, BEGIN and its like not. Whatever is
released or granted is taken back, so that each slice meets the same.
"""

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

from benchmarks import tables
from benchmarks.clocks import Spent, spent
from benchmarks.contenders.contender import Contender
from benchmarks.contenders.site import LANES, TOKEN
from benchmarks.history import RARE_TASK, job_name
from benchmarks.scenarios.enqueue import WARM_UP, requests

MAIN, HIGHER = "job list", False
ACROSS = True
"""Printed a line a figure, a column a size."""
DEFAULTS = {"database": "", "done": 1_000}
CALLS, BATCH = 8, 100
ADMIN = "/admin/celery_guard/"
HOT = (
    *("enqueue", "release", "claim and finish", "admission"),
    *("snapshot", "sweep", "rescue", "purge, a thousand rows"),
)
CLOCK, QUERIES, TOGETHER = " by the clock", " queries", "full admin pages, together"
SPARSE = ("jobs failed", "jobs dead-letters", "jobs superseded", "jobs of a task, failed")
"""Lists that a small ledger has no full page for: they grow with what they show."""
CONTROL = re.compile(r"BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE")


def prepare(contender: Contender, params: Mapping[str, Any]) -> Callable[[], dict[str, float]]:
    """Move to the database, look at everything once, and return what one slice does."""
    if not params["database"]:
        raise ValueError("the databases are made for row 12: scripts/bench --rows 12")
    tables.move_to(params["database"])
    contender.setup()
    pages, hot = Pages(params["done"]), Hot(contender)
    pages.measure()
    return lambda: {**hot.measure(), **pages.measure()}


class Pages:
    """The admin of somebody who may see everything, and what is answered to programs."""

    def __init__(self, done: int) -> None:
        from django.contrib.auth.models import User
        from django.test import Client

        name = uuid.uuid4().hex
        self.client = Client(headers={"Authorization": f"Bearer {TOKEN}"})
        self.client.force_login(User.objects.create_superuser(name))
        self.addresses = dict(addresses(done))

    def measure(self) -> dict[str, float]:
        """Ask for every page once."""
        found: dict[str, float] = {}
        for name, address in self.addresses.items():
            cost, queries = self._ask(address)
            found |= {name: cost.busy, f"{name}{CLOCK}": cost.clock, f"{name}{QUERIES}": queries}
        admin = (name for name, address in self.addresses.items() if address.startswith(ADMIN))
        return {**found, TOGETHER: sum(found[name] for name in admin if name not in SPARSE)}

    def _ask(self, address: str) -> tuple[Spent, int]:
        from django.db import connection
        from django.test.utils import CaptureQueriesContext

        def ask() -> None:
            answer = self.client.get(address)
            assert answer.status_code == 200, f"{address}: {answer.status_code}"

        with CaptureQueriesContext(connection) as captured:
            cost = spent(ask)
        made = [query for query in captured.captured_queries if not CONTROL.match(query["sql"])]
        return cost, len(made)


def addresses(done: int) -> Iterator[tuple[str, str]]:
    """Every page by a name: lists as they come, filtered, searched, gone through; rows; the rest."""
    middle, old = done // 2, done // 5
    yield "dashboard", ADMIN
    jobs = f"{ADMIN}job/"
    yield "job list", jobs
    for state in ("waiting", "running", "succeeded", "failed", "dead-letters", "superseded"):
        yield f"jobs {state}", f"{jobs}?state={state}"
    yield "jobs of a lane", f"{jobs}?lane=low"
    yield "jobs of a task", f"{jobs}?task=shop.task3"
    yield "jobs of a rare task", f"{jobs}?task={RARE_TASK}"
    yield "jobs of a task, failed", f"{jobs}?task=shop.task3&state=failed"
    yield "jobs by key", f"{jobs}?q=order:{middle // 10 * 10 + 1}"
    yield "jobs by public id", f"{jobs}?q={job_name(middle)}"
    yield "jobs by id", f"{jobs}?q={middle}"
    yield "jobs older, far down", f"{jobs}?older={old}"
    yield "jobs newer, far down", f"{jobs}?newer={old}"
    for name, sought in (("attempt", str(middle)), ("outboxmessage", str(middle))):
        yield f"{name} list", f"{ADMIN}{name}/"
        yield f"{name}s by id", f"{ADMIN}{name}/?q={sought}"
        yield f"{name}s older, far down", f"{ADMIN}{name}/?older={old}"
    yield "effect list", f"{ADMIN}effect/"
    yield "effects older, far down", f"{ADMIN}effect/?older={old}"
    for name in ("job", "attempt", "outboxmessage", "effect"):
        yield f"{name} page", f"{ADMIN}{name}/{middle}/change/"
    yield "lane list", f"{ADMIN}lanesnapshot/"
    yield "replay list", f"{ADMIN}replay/"
    yield "status", f"/jobs/{job_name(middle)}/"
    yield "metrics", "/jobs/metrics"


PAGES = tuple(name for name, _ in addresses(1_000))


class Hot:
    """What a busy site does all the time."""

    def __init__(self, contender: Contender) -> None:
        self.contender: Any = contender
        self.enqueue = requests(contender, 1)
        self.turns = {
            name: getattr(self, f"_{name.split(',')[0].replace(' ', '_')}") for name in HOT
        }
        for _ in range(WARM_UP):
            self.enqueue()
        self.measure()

    def measure(self) -> dict[str, float]:
        """Do each a few times and return what the middle one took."""
        found: dict[str, float] = {}
        for name, turn in self.turns.items():
            costs = list(turn())
            found[name] = median(cost.busy for cost in costs)
            found[f"{name}{CLOCK}"] = median(cost.clock for cost in costs)
        return found

    def _enqueue(self) -> Iterator[Spent]:
        return (spent(self.enqueue) for _ in range(CALLS))

    def _release(self) -> Iterator[Spent]:
        from celery_guard.jobs.sending import unsend
        from celery_guard.relay import lead

        held = lead.take("default", uuid.uuid4(), LANES, 60.0)["low"]
        for _ in range(CALLS):
            sent: list[Any] = []
            yield spent(partial(_release_into, sent, held))
            assert len(sent) == BATCH, f"{len(sent)} jobs were released"
            unsend("default", sent)
        lead.resign("default", held.owner)

    def _claim_and_finish(self) -> Iterator[Spent]:
        return map(spent, self.contender.executions(CALLS))

    def _admission(self) -> Iterator[Spent]:
        for number in range(CALLS):
            places: list[Any] = []
            yield spent(partial(_admit_into, places, self.contender.work, -1 - number))
            places.pop().give_back()

    def _snapshot(self) -> Iterator[Spent]:
        from celery_guard.watch.snapshot import take_snapshot

        return (spent(partial(take_snapshot, "default")) for _ in range(3))

    def _sweep(self) -> Iterator[Spent]:
        from celery_guard.relay.sweep import sweep

        return (spent(partial(sweep, "default")) for _ in range(3))

    def _rescue(self) -> Iterator[Spent]:
        from celery_guard.run.rescue import rescue

        return (spent(partial(rescue, "default")) for _ in range(3))

    def _purge(self) -> Iterator[Spent]:
        from celery_guard.relay.purge import RANGE, walk

        rows = min(RANGE, int(tables.scalar("SELECT max(id) FROM celery_guard_job")))
        for _ in range(3):
            cost = spent(partial(walk, "default", 0, until=0.0))
            yield Spent(clock=cost.clock * 1e3 / rows, busy=cost.busy * 1e3 / rows)


def _release_into(found: list[Any], lead: Any) -> None:
    from celery_guard.jobs.release import release

    found += release("default", lead, BATCH, None)


def _admit_into(found: list[Any], task: Any, order: int) -> None:
    from celery_guard import admit

    found.append(admit(task, (order,)))
