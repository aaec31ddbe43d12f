"""A lane's line to the broker: one thread, one connection, one batch after the other.

The thread never touches the database, and nothing waits for it: while it publishes, the relay
marks the next batch; while its destination is away, the other lanes go on.
"""

from __future__ import annotations

import dataclasses
import logging
import queue
import threading
from collections.abc import Callable, Sequence

from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs.sending import Sending
from celery_guard.relay.breaker import Breaker
from celery_guard.relay.publish.deliver import Delivery, deliver, describe
from celery_guard.relay.publish.wire import BudgetSpent, Publisher

AHEAD = 2
"""Batches a line may hold: the one being published, and the next."""
IDLE = 60.0
"""Seconds after which an unused connection is closed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a line says to its relay: a batch is done, or (without one) the lane is open again."""

    lane: str
    delivery: Delivery | None = None


class Line:
    """The batches of one lane on their way to the broker."""

    def __init__(
        self,
        lane: str,
        publisher: Callable[[], Publisher],
        budget: float,
        report: Callable[[Report], None],
    ) -> None:
        self.lane = lane
        self.held: list[Sequence[Sending]] = []
        self.open = True
        """Whether the destination takes messages, as far as is known."""
        self._make = publisher
        self._publisher: Publisher | None = None
        self._budget = budget
        self._report = report
        self._todo: queue.SimpleQueue[Sequence[Sending] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._breaker = Breaker()
        self._thread: threading.Thread | None = None

    @property
    def room(self) -> bool:
        """Whether the line takes another batch now."""
        return self.open and len(self.held) < AHEAD

    def submit(self, batch: Sequence[Sending]) -> None:
        """Publish ``batch`` after the ones before it; a report follows, whatever happens."""
        self.held.append(batch)
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._run, name=f"guard-line-{self.lane}", daemon=True
            )
            self._thread.start()
        self._todo.put(batch)

    def settle(self) -> None:
        """Forget the oldest batch: its report has been dealt with."""
        self.held.pop(0)

    def stop(self) -> None:
        """Publish nothing that has not begun; report it as unsent."""
        self._stopping.set()
        self._todo.put(None)

    def join(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the thread to end."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                self._do(batch)
        finally:
            self._hang_up()

    def _next(self) -> Sequence[Sending] | None:
        while True:
            try:
                return self._todo.get(timeout=IDLE)
            except queue.Empty:
                self._hang_up()

    def _hang_up(self) -> None:
        if self._publisher is not None:
            self._publisher.close()

    def _do(self, batch: Sequence[Sending]) -> None:
        if self._stopping.is_set():
            self._tell(Delivery(unsent=tuple(batch)))
            return
        fault_point("relay.publishing", *(s.id for s in batch))
        delivery = self._deliver(batch)
        fault_point("relay.published", *(s.id for s in batch))
        if delivery.outage:
            self.open = False
        elif delivery.sent:
            self._breaker.worked()
        self._tell(delivery)
        if delivery.outage:
            self._wait_until_back(delivery)

    def _deliver(self, batch: Sequence[Sending]) -> Delivery:
        try:
            if self._publisher is None:
                self._publisher = self._make()
            return deliver(self._publisher, batch, self._budget)
        # A broker URL that nobody understands, a fault of ours: the lane must not hang for it.
        except Exception as error:  # noqa: BLE001
            return Delivery(unsent=tuple(batch), outage=describe(error))

    def _tell(self, delivery: Delivery) -> None:
        self._report(Report(lane=self.lane, delivery=delivery))

    def _wait_until_back(self, delivery: Delivery) -> None:
        what = "relay.timed_out" if BudgetSpent.__name__ in delivery.outage else "relay.outage"
        emit(what, logging.WARNING, lane=self.lane, error=delivery.outage)
        while not self._stopping.is_set():
            self._hand_back()
            if not self._stopping.wait(self._breaker.failed()) and self._is_back(delivery):
                emit("relay.back", lane=self.lane, failures=self._breaker.failures)
                self.open = True
                self._report(Report(lane=self.lane))
                return

    def _is_back(self, delivery: Delivery) -> bool:
        try:
            if self._publisher is None:
                self._publisher = self._make()
            self._publisher.probe(self._publisher.encode(delivery.unsent[0]))
        # The same errors as before, still there; the first one was told.
        except Exception as error:  # noqa: BLE001
            emit("relay.still_away", logging.DEBUG, lane=self.lane, error=describe(error))
            return False
        return True

    def _hand_back(self) -> None:
        while not self._todo.empty():
            if (batch := self._todo.get()) is None:
                return
            self._tell(Delivery(unsent=tuple(batch)))
