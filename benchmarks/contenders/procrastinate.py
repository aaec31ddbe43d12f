"""procrastinate: PostgreSQL is the queue; no broker, no relay."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks import tables
from benchmarks.contenders.contender import Command, Contender, manage

COUNT = "SELECT count(*) FROM procrastinate_jobs WHERE status = ANY(%s::text[]::procrastinate_job_status[])"


class Procrastinate(Contender):
    """One `defer` a job."""

    name = "procrastinate"
    package = "procrastinate"
    scenarios = frozenset({"enqueue", "latency", "worker", "end_to_end"})
    django_apps = ("procrastinate.contrib.django",)
    own_tables = ("procrastinate_jobs", "procrastinate_events")
    poll_every = 0.1

    def django_settings(self) -> Mapping[str, Any]:
        return {"PROCRASTINATE_AUTODISCOVER_MODULE_NAME": "procrastinate_tasks"}

    def setup(self) -> None:
        from benchmarks.shop.procrastinate_tasks import work

        self.work = work

    def enqueue(self, order_id: int, kind: str = "noop") -> None:
        self.work.defer(order_id=order_id, kind=kind)

    def queued(self) -> int:
        return int(tables.scalar(COUNT, [["todo"]]))

    def unfinished(self) -> int:
        return int(tables.scalar(COUNT, [["todo", "doing"]]))

    def worker_commands(self, concurrency: int) -> Sequence[Command]:
        return [manage("procrastinate", "worker", "--concurrency", str(concurrency))]


class ProcrastinateBatch(Procrastinate):
    """`batch_defer`: one statement for all jobs of the transaction."""

    name = "procrastinate_batch"
    scenarios = frozenset({"enqueue"})

    def enqueue_in_tx(self, order_ids: Iterable[int], kind: str = "noop") -> None:
        self.work.batch_defer(*[{"order_id": one, "kind": kind} for one in order_ids])


CONTENDERS = (Procrastinate(), ProcrastinateBatch())
