"""Celery alone."""

from collections.abc import Mapping
from typing import Any

from benchmarks.contenders.contender import Contender


class Nothing(Contender):
    """The business transaction with no job: the floor of `enqueue`."""

    name = "none"
    scenarios = frozenset({"enqueue"})

    def setup(self) -> None:
        pass

    def enqueue(self, order_id: int, kind: str = "noop") -> None:
        pass


class Delay(Contender):
    """`.delay()` in the transaction: the usual starting point, and not safe."""

    name = "delay"
    scenarios = frozenset({"enqueue", "latency", "worker", "end_to_end"})

    def enqueue(self, order_id: int, kind: str = "noop") -> None:
        self.work.delay(order_id, kind=kind)


class DelayOnCommit(Delay):
    """`.delay_on_commit()`: the job is lost when the process dies after COMMIT."""

    name = "delay_on_commit"

    def enqueue(self, order_id: int, kind: str = "noop") -> None:
        self.work.delay_on_commit(order_id, kind=kind)


class AcksLate(Delay):
    """A plain task that is acknowledged after it ran, as a guarded one is."""

    name = "acks_late"
    scenarios = frozenset({"latency", "worker"})

    def task_options(self) -> Mapping[str, Any]:
        return {"acks_late": True}


CONTENDERS = (Nothing(), Delay(), DelayOnCommit(), AcksLate())
