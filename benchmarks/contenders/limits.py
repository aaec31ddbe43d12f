"""What the machine allows: the smallest outbox and relay that are still correct.

Correct means: rows are written in the business transaction, locked while they are sent, and
removed only after the broker has taken the message. They differ in how a message is sent.
"""

import json
import uuid
from collections.abc import Iterable

from benchmarks import tables
from benchmarks.contenders.contender import Command, Contender, python

INSERT = "INSERT INTO limit_outbox (task_id, task, payload) VALUES (%s, %s, %s)"
INSERT_ALL = (
    "INSERT INTO limit_outbox (task_id, task, payload) "
    "SELECT * FROM json_to_recordset(%s) AS t(task_id uuid, task text, payload text)"
)
# The relay listens. In the transaction, because these versions show the least that works.
WAKE = "NOTIFY limit_outbox"


class Insert(Contender):
    """Raw insert: one INSERT a job, and a NOTIFY."""

    name = "limit_insert"
    scenarios = frozenset({"enqueue"})
    relay_mode = ""

    def payload(self, task_id: str, order_id: int, kind: str) -> str:
        return json.dumps([[order_id], {"kind": kind}, {}])

    def row(self, order_id: int, kind: str) -> tuple[str, str, str]:
        task_id = str(uuid.uuid4())
        return task_id, "bench.work", self.payload(task_id, order_id, kind)

    def enqueue(self, order_id: int, kind: str = "noop") -> None:
        self.enqueue_in_tx([order_id], kind)

    def enqueue_in_tx(self, order_ids: Iterable[int], kind: str = "noop") -> None:
        for order_id in order_ids:
            tables.execute(INSERT, self.row(order_id, kind))
        tables.execute(WAKE)

    def fill(self, rows: int) -> None:
        from django.db import transaction

        with transaction.atomic():
            self.enqueue(1)
        tables.multiply("limit_outbox", rows, task_id="gen_random_uuid()")

    def pending(self) -> int:
        return int(tables.scalar("SELECT count(*) FROM limit_outbox"))

    def relay_command(self) -> Command | None:
        if not self.relay_mode:
            return None
        return python("-m", "benchmarks.limit_relay", self.relay_mode)


class BulkInsert(Insert):
    """Raw insert of all the transaction's jobs in one statement."""

    name = "limit_bulk_insert"

    def enqueue_in_tx(self, order_ids: Iterable[int], kind: str = "noop") -> None:
        rows = [self.row(order_id, kind) for order_id in order_ids]
        document = [dict(zip(("task_id", "task", "payload"), row, strict=True)) for row in rows]
        tables.execute(INSERT_ALL, [json.dumps(document)])
        tables.execute(WAKE)


class Publish(Insert):
    """Raw publish: the message is finished in the row; one publish a row."""

    name = "limit_publish"
    scenarios = frozenset({"relay"})
    relay_mode = "publish"

    def payload(self, task_id: str, order_id: int, kind: str) -> str:
        message = self.work.app.amqp.as_task_v2(
            task_id, "bench.work", [order_id], {"kind": kind}, ignore_result=True
        )
        return json.dumps([message.headers, message.properties, json.dumps(message.body)])


class PipelinedPublish(Publish):
    """Pipelined publish: the same through kombu's batch (on RabbitMQ: not confirmed)."""

    name = "limit_pipeline"
    scenarios = frozenset({"relay", "latency", "enqueue", "end_to_end"})
    relay_mode = "pipeline"


class ConfirmedPublish(Publish):
    """RabbitMQ only: every message confirmed, one wait a batch."""

    name = "limit_confirmed"
    relay_mode = "confirmed"


class Wire(Insert):
    """Redis only: the finished list element in the row, one variadic push a batch: the floor."""

    name = "limit_wire"
    scenarios = frozenset({"relay"})
    relay_mode = "wire"

    def payload(self, task_id: str, order_id: int, kind: str) -> str:
        from benchmarks.wire import redis_message

        return redis_message(task_id, "bench.work", [order_id], {"kind": kind})


CONTENDERS = (
    Insert(),
    BulkInsert(),
    Publish(),
    PipelinedPublish(),
    ConfirmedPublish(),
    Wire(),
)
