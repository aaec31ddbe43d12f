"""What a contender must be able to do, with what all Celery-based ones share."""

import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks import queues, tables
from benchmarks.place import here

Command = list[str]
ALL_SCENARIOS = frozenset({"enqueue", "relay", "latency", "worker", "end_to_end"})


class Contender:
    """One way to get a job from a Django transaction into a worker.

    Nothing here imports Django or a peer before `setup()`: the registry lists contenders whose
    packages are missing.
    """

    name = ""
    package: str | None = None  # import name of what must be installed
    scenarios: frozenset[str] = ALL_SCENARIOS
    django_apps: tuple[str, ...] = ()
    own_tables: tuple[str, ...] = ()
    pool = "prefork"
    poll_every = 0.01  # seconds; more where looking costs the contender's own database

    def installed(self) -> bool:
        """Whether the contender's package is there."""
        return self.package is None or importlib.util.find_spec(self.package) is not None

    # Configuration

    def django_settings(self) -> Mapping[str, Any]:
        """Settings added to the measured site."""
        return {}

    def celery_settings(self) -> Mapping[str, Any]:
        """Celery settings added to the measured app."""
        return {}

    def make_celery(self) -> Any:
        """Return the Celery app."""
        from celery import Celery

        return Celery("bench")

    def task_options(self) -> Mapping[str, Any]:
        """Options of the one measured task."""
        return {}

    def run_job(self, task_id: str, order_id: int, kind: str) -> None:
        """The task's body."""
        from benchmarks.jobs import do_job

        do_job(order_id, kind)

    # Producing

    def setup(self) -> None:
        """Import and connect everything `enqueue` needs."""
        from benchmarks.celery_app import work

        self.work: Any = work

    def ask(self, order_id: int, kind: str = "noop") -> None:
        """Ask for room for one job, where the contender does; called before the transaction."""

    def enqueue(self, order_id: int, kind: str = "noop") -> None:
        """Enqueue one job; called inside `transaction.atomic()`."""
        raise NotImplementedError

    def enqueue_in_tx(self, order_ids: Iterable[int], kind: str = "noop") -> None:
        """Enqueue several jobs inside one transaction."""
        for order_id in order_ids:
            self.enqueue(order_id, kind)

    # The outbox

    def fill(self, rows: int) -> None:
        """Leave `rows` unsent outbox rows behind, quickly."""
        raise NotImplementedError

    def fill_done(self, rows: int) -> None:
        """Leave `rows` finished rows behind, where the contender keeps any."""
        raise NotImplementedError

    def pending(self) -> int:
        """Outbox rows not yet sent."""
        return 0

    def relay_command(self) -> Command | None:
        """The long-running relay process with its defaults, or None."""
        return None

    def poll_seconds(self) -> float:
        """How often an idle relay looks, in seconds."""
        raise NotImplementedError

    def settled(self) -> bool:
        """Whether the relay has done what it does once, when it is started."""
        return True

    # The broker and the worker

    def queue_up(self, jobs: int, kind: str) -> None:
        """Put `jobs` messages on the broker, for a worker that starts later."""
        from django.db import transaction

        for start in range(0, jobs, 1000):
            with transaction.atomic():
                self.enqueue_in_tx(range(start, min(jobs, start + 1000)), kind)

    def queued(self) -> int:
        """Messages waiting at the broker (cheap: it is polled)."""
        return queues.length(here().queue)

    def unfinished(self) -> int:
        """Jobs the workers have not finished (cheap: it is polled)."""
        return queues.unfinished(here().queue)

    def worker_commands(self, concurrency: int) -> Sequence[Command]:
        """The worker processes for `concurrency` jobs at a time."""
        options = ["-P", self.pool, "-c", str(concurrency), "-l", "warning"]
        quiet = ["--without-gossip", "--without-mingle"]
        return [
            python("-m", "celery", "-A", "benchmarks.celery_app:app", "worker", *options, *quiet)
        ]

    # Execution in this process, for the scenario `claims`

    def executions(self, count: int) -> Iterable[Callable[[], None]]:
        """Return `count` calls that each execute one fresh job."""
        raise NotImplementedError

    def released(self, kind: str) -> Sequence[Callable[[], None]]:
        """Return a call for every enqueued job that executes it, as if a relay had sent it."""
        raise NotImplementedError

    def duplicate(self) -> Callable[[], None]:
        """Return a call that delivers one finished job again."""
        raise NotImplementedError

    def reset(self) -> None:
        """Empty the contender's tables, the shop's tables, the broker and the counters."""
        tables.empty(self.own_tables)
        queues.empty(here().queue)


def python(*arguments: str) -> Command:
    """Return the command of this interpreter with `arguments`."""
    return [sys.executable, *arguments]


def manage(*arguments: str) -> Command:
    """Return a Django management command of the measured site."""
    return python("-m", "benchmarks.manage", *arguments)
