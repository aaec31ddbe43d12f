"""celery_guard itself, in the ways it can be used."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks import tables
from benchmarks.contenders.contender import Command, Contender, manage
from benchmarks.place import here
from benchmarks.processes import running, wait_until

JOBS, MESSAGES = "celery_guard_job", "celery_guard_outboxmessage"
# What the relay writes when it releases a job, for executions that do without a broker.
RELEASE = f"""
UPDATE {JOBS} SET sent_at = clock_timestamp(), sends = sends + 1
WHERE state = 'waiting' AND sent_at IS NULL RETURNING id
"""
FINISHED = {
    "state": "'succeeded'",
    "due_at": "NULL",
    "sent_at": "NULL",
    "finished_at": "now() - {g} * interval '1 microsecond'",
    "fence": "1",
    "starts": "1",
    "sends": "1",
}


FAR_OFF = 1_000_000


class Guard(Contender):
    """One `delay` a job, everything at its defaults but a relay that is not the worker's child."""

    name = "celery_guard"
    package = "celery_guard"
    scenarios = Contender.scenarios | {"claims", "idle", "writes", "price"}
    django_apps = ("celery_guard",)
    own_tables = (JOBS, MESSAGES, "celery_guard_attempt")
    window: int | str | None = "auto"

    def django_settings(self) -> Mapping[str, Any]:
        return {
            "CELERY_TASK_DEFAULT_QUEUE": here().queue,
            "CELERY_GUARD": {
                "redis": here().redis_url,
                # Relay and worker are separate processes here, so that each can be measured.
                "relay": {"host": False},
                "lanes": {"medium": {"window": self.window}},
            },
        }

    def task_options(self) -> Mapping[str, Any]:
        from celery_guard import GuardedTask

        return {"base": GuardedTask, "key": "bench:{order_id}"}

    def setup(self) -> None:
        super().setup()
        # Several processes may enqueue side by side, and a key names one operation for good.
        self.first = os.getpid() * 10**9
        self.next = self.first + 10**8
        self.ready: deque[Callable[[], None]] = deque()

    def enqueue(self, order_id: int, kind: str = "noop") -> None:
        self.work.delay(self.first + order_id, kind=kind)

    def fill(self, rows: int) -> None:
        self._fill(rows, due_at="due_at + {g} * interval '1 microsecond'")

    def fill_done(self, rows: int) -> None:
        self._fill(rows, **FINISHED)

    def _fill(self, rows: int, **columns: str) -> None:
        from django.db import transaction

        self.next += 1
        with transaction.atomic():
            self.work.delay(self.next)
        message = tables.scalar(f"SELECT max(id) FROM {MESSAGES}")
        tables.multiply(MESSAGES, rows)
        tables.multiply(
            JOBS,
            rows,
            key=f"'fill:{self.next}:' || {{g}}",
            public_id="gen_random_uuid()",
            message_id=f"{message} + {{g}}",
            **columns,
        )

    def pending(self) -> int:
        return int(
            tables.scalar(
                f"SELECT count(*) FROM {JOBS} "
                "WHERE lane = 'medium' AND sent_at IS NULL AND due_at IS NOT NULL"
            )
        )

    def relay_command(self) -> Command:
        return manage("guard_relay", "--app", "benchmarks.celery_app:app")

    def poll_seconds(self) -> float:
        from celery_guard.conf import guard_settings

        return guard_settings().relay.poll

    def settled(self) -> bool:
        return not tables.scalar(
            "SELECT count(*) FILTER (WHERE done_at IS NULL OR busy_until IS NOT NULL) "
            "+ (count(*) = 0)::int FROM celery_guard_duty"
        )

    def queue_up(self, jobs: int, kind: str) -> None:
        super().queue_up(jobs, kind)
        with running(self.relay_command()) as processes:
            wait_until(lambda: self.queued() >= jobs, 120, 0.02, *processes)

    def executions(self, count: int) -> Iterator[Callable[[], None]]:
        if (missing := count - len(self.ready)) > 0:
            self._make_ready(missing)
        return (self.ready.popleft() for _ in range(count))

    def duplicate(self) -> Callable[[], None]:
        self._make_ready(1)
        again = self.ready.pop()
        again()
        return again

    def _make_ready(self, count: int) -> None:
        from django.db import transaction

        from celery_guard import enqueue_many

        orders = range(self.next + 1, self.next + count + 1)
        self.next += count
        with transaction.atomic():
            enqueue_many([self.work.s(order, kind="write") for order in orders])
        self.ready.extend(self.released("write"))

    def released(self, kind: str) -> Sequence[Callable[[], None]]:
        return [partial(self._execute, number, kind) for (number,) in tables.execute(RELEASE)]

    def _execute(self, job_id: int, kind: str) -> None:
        # As Celery's tracer calls a task, without a message around it.
        from celery.app.task import Context

        request = {"id": str(job_id), "guard_job": job_id, "is_eager": False}
        self.work.request_stack.push(Context(request, called_directly=False, args=(), kwargs={}))
        try:
            self.work(job_id, kind=kind)
        finally:
            self.work.request_stack.pop()


class Bulk(Guard):
    """`enqueue_many`: all jobs of the transaction in one statement."""

    name = "celery_guard_bulk"

    def enqueue_in_tx(self, order_ids: Iterable[int], kind: str = "noop") -> None:
        from celery_guard import enqueue_many

        enqueue_many([self.work.s(self.first + one, kind=kind) for one in order_ids])


class Group(Guard):
    """A Celery group, written in bulk without being asked to."""

    name = "celery_guard_group"
    scenarios = frozenset({"enqueue"})

    def enqueue_in_tx(self, order_ids: Iterable[int], kind: str = "noop") -> None:
        from celery import group

        group(self.work.s(self.first + one, kind=kind) for one in order_ids).apply_async()


class Open(Bulk):
    """No window: the broker may hold the whole backlog, as it does for every peer."""

    name = "celery_guard_open"
    window = None


class Limited(Guard):
    """Everything on: a tenant, a dependency, limits on lane and tenant, a place asked for.

    No limit is ever reached, so that what is measured is their price.
    """

    name = "celery_guard_limited"

    def django_settings(self) -> Mapping[str, Any]:
        settings = dict(super().django_settings())
        admission = {"depth": FAR_OFF, "age": FAR_OFF, "wait": FAR_OFF}
        settings["CELERY_GUARD"] = {
            **settings["CELERY_GUARD"],
            "lanes": {"medium": {"window": self.window, "admission": admission}},
            "tenants": {"waiting": FAR_OFF, "running": FAR_OFF, "rate": f"{FAR_OFF}/s"},
            "dependencies": {"service": {"rate": "100000/s", "concurrency": 1000}},
        }
        return settings

    def task_options(self) -> Mapping[str, Any]:
        return {**super().task_options(), "tenant": "{kind}", "dependency": "service"}

    def ask(self, order_id: int, kind: str = "noop") -> None:
        from celery_guard import admit

        admit(self.work, (self.first + order_id,), {"kind": kind})


CONTENDERS = (Guard(), Bulk(), Group(), Open(), Limited())
