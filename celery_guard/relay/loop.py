"""The relay: leads lanes, releases what is due, hands it to the lines, writes down what came back.

One thread does all of this relay's writing, so that its order is the order of this file. It
never talks to the broker and never waits for one. Nothing is published inside a transaction.
"""

from __future__ import annotations

import logging
import os
import queue
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Collection
from pathlib import Path

from celery import Celery
from django.db import Error as DatabaseError
from django.db import connections

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs.deadlock import again_on_deadlock
from celery_guard.jobs.release import resend
from celery_guard.jobs.sending import Lead, Sending, next_due
from celery_guard.relay import lead as leads
from celery_guard.relay import plain
from celery_guard.relay.away import Word
from celery_guard.relay.breaker import Breaker
from celery_guard.relay.desk import Desk
from celery_guard.relay.fair import Turns
from celery_guard.relay.line import Line, Report
from celery_guard.relay.listen import Listener
from celery_guard.relay.pace import Pace
from celery_guard.relay.placing import Places
from celery_guard.relay.presence import Worker, live_workers
from celery_guard.relay.publish import publisher_for
from celery_guard.relay.publish.deliver import Delivery
from celery_guard.relay.steering import Freeing
from celery_guard.relay.telling import to_be_told
from celery_guard.relay.upkeep import Upkeep
from celery_guard.relay.write_back import write_back

Heard = Report | set[str] | None


class Relay:
    """One relay for the ledger on one database.

    :param lanes: lead only these; None: all there are.
    :param liveness: a file touched as long as the loop turns.
    :param worker: the worker that hosts this relay, to be reported as alive.
    :param parent: process id of that worker; the relay ends when it is gone.
    :param desk: where relay and worker tell each other how large the pool is and should be.
    """

    def __init__(
        self,
        using: str,
        app: Celery,
        *,
        lanes: Collection[str] | None = None,
        liveness: Path | None = None,
        worker: Worker | None = None,
        parent: int | None = None,
        desk: Desk | None = None,
    ) -> None:
        self.using = using
        self.owner = uuid.uuid4()
        self._app = app
        self._settings = guard_settings().relay
        self._only = lanes
        self._liveness = liveness
        self._parent = parent
        self._own = [] if worker is None else [worker]
        self._inbox: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self._stopping = False
        self._leads: dict[str, Lead] = {}
        self._lines: dict[str, Line] = {}
        self._paces: dict[str, Pace] = {}
        self._places = Places(using)
        self._turns: defaultdict[str, Turns] = defaultdict(lambda: Turns(using, self._places))
        self._freeing = Freeing(using)
        self._word = Word(using)
        self._owed: deque[Report] = deque()
        self._known: set[str] = set()
        self._workers: list[Worker] = []
        self._renew_at = self._sweep_at = self._poll_at = self._touch_at = 0.0
        self._database = Breaker()
        self._listener = Listener(using, self._inbox.put, app)
        self._upkeep = Upkeep(using, worker, desk)

    def stop(self) -> None:
        """Release nothing more, and end. May be called from a signal handler."""
        self._stopping = True
        self._inbox.put(None)

    def run(self) -> None:
        """Work until stopped; then take back what was marked and not published."""
        self._listener.start()
        self._upkeep.start()
        emit("relay.started", using=self.using, owner=str(self.owner))
        try:
            while not self._stopping:
                self._safely(self._turn)
                self._alive()
                self._hear(self._until_next())
        finally:
            self._end()

    def _safely(self, work: Callable[[], None]) -> bool:
        try:
            # A turn that ends half done is begun anew after every fault: all of it bears that.
            again_on_deadlock(work)
        except DatabaseError as error:
            self._lost_database(error)
            return False
        self._database.worked()
        return True

    def _lost_database(self, error: Exception) -> None:
        failed = f"{type(error).__name__}: {error}"
        emit("relay.database_lost", logging.WARNING, using=self.using, error=failed)
        connections[self.using].close()
        until = time.monotonic() + self._database.failed()
        while not self._stopping and (left := until - time.monotonic()) > 0:
            self._hear(left)

    def _turn(self) -> None:
        self._write_back()
        # Before the upkeep, which can wait, unlike whoever has just woken the relay.
        self._each(self._release_if_time)
        now = time.monotonic()
        if now >= self._renew_at:
            self._renew(now)
        if now >= self._sweep_at:
            self._sweep_at = now + guard_settings().sweep.every
            self._heal()
        self._word.give({lead: not self._line(lane).open for lane, lead in self._leads.items()})
        freed = self._freeing.free(self._leads) | self._places.look(self._leads)
        for lane in freed:
            self._paces[lane].now()
        self._ask_what_is_due()

    def _each(self, work: Callable[[Lead, Line, Pace], None]) -> None:
        for lane, lead in list(self._leads.items()):
            line = self._line(lane)
            if line.room and not self._stopping:
                work(lead, line, self._paces[lane])

    def _release_if_time(self, lead: Lead, line: Line, pace: Pace) -> None:
        if pace.look_at > time.monotonic():
            return
        batch = self._turns[lead.lane].release(lead, pace.batch, self._workers)
        if batch:
            fault_point("relay.marked", *(s.id for s in batch))
        pace.took(len(batch), sum(len(s.body) for s in batch), time.monotonic())
        self._submit(line, batch)

    def _heal(self) -> None:
        suspected = leads.suspected(self.using, self.owner) if self._leads else set()
        if suspected:
            self._each(lambda lead, line, pace: self._send_again(lead, line, pace, suspected))
        self._each(self._tell_of_ends)
        held = [
            sending.id
            for line in self._lines.values()
            for batch in line.held
            for sending in batch
            if sending.plain
        ]
        grace = guard_settings().sweep.resend_grace + self._settings.budget
        for lane in plain.recover(self.using, self._leads.keys(), grace, held):
            self._paces[lane].now()

    def _send_again(self, lead: Lead, line: Line, pace: Pace, suspected: set[str]) -> None:
        if lead.lane not in suspected:
            return
        again = resend(self.using, lead, pace.batch, guard_settings().sweep.resend_grace)
        if again:
            fault_point("relay.sent_again", *(s.id for s in again))
            emit("relay.sent_again", logging.WARNING, lane=lead.lane, count=len(again))
            self._submit(line, again)

    def _tell_of_ends(self, lead: Lead, line: Line, pace: Pace) -> None:
        # A lane's untold ends take a while to look for: whoever woke the relay meanwhile is first.
        self._hear(0.0)
        self._each(self._release_if_time)
        if line.room and (messages := to_be_told(self.using, lead)):
            line.submit(messages)

    def _submit(self, line: Line, batch: list[Sending]) -> None:
        expired = [sending for sending in batch if sending.sent_at is None]
        if expired:
            emit("relay.expired", lane=line.lane, count=len(expired))
        # Somebody may wait for an expired job: its message lets a worker tell them.
        if outgoing := [s for s in batch if s.sent_at is not None or s.awaited]:
            line.submit(outgoing)

    def _ask_what_is_due(self) -> None:
        now = time.monotonic()
        asked = [
            lane
            for lane in self._leads
            if self._line(lane).room and now >= min(self._paces[lane].ask_at, self._poll_at)
        ]
        if now >= self._poll_at:
            hears = self._listener.hears
            self._poll_at = now + (self._settings.poll if hears else self._settings.poll_blind)
        due = next_due(self.using, asked)
        for lane in asked:
            self._paces[lane].due_in(due.get(lane), time.monotonic())

    def _renew(self, now: float) -> None:
        lease = self._settings.lead_lease
        self._renew_at = now + lease / 3
        held = leads.renew(self.using, self.owner, lease) if self._leads else {}
        for lane in [name for name, lead in self._leads.items() if held.get(name) != lead]:
            emit("relay.lost_lead", logging.WARNING, lane=lane)
            del self._leads[lane], self._paces[lane]
        self._known = leads.find_lanes(self.using)
        wanted = self._known if self._only is None else self._known & set(self._only)
        taken = leads.take(self.using, self.owner, wanted - self._leads.keys(), lease)
        for lane, lead in taken.items():
            emit("relay.leads", lane=lane, term=lead.term)
            self._leads[lane] = lead
            self._paces[lane] = Pace(self._settings.batch, self._settings.poll)
        fault_point("relay.leads")
        if self._leads:
            # Its own is known before anybody has reported; else all that is due would be sent at once.
            self._workers = live_workers(self.using) or self._own

    def _alive(self) -> None:
        now = time.monotonic()
        if self._liveness is not None and now >= self._touch_at:
            self._touch_at = now + 1.0
            self._liveness.touch()

    def _line(self, lane: str) -> Line:
        if lane not in self._lines:
            self._lines[lane] = Line(
                lane,
                lambda: publisher_for(self._app, self._settings.timeout),
                self._settings.budget,
                self._inbox.put,
            )
        return self._lines[lane]

    def _write_back(self) -> None:
        while self._owed:
            report = self._owed[0]
            if report.delivery is not None:
                fault_point("relay.writing_back")
                write_back(self.using, report.lane, report.delivery)
                fault_point("relay.wrote_back")
                self._lines[report.lane].settle()
            # Only now: after a lost connection the same report is written again.
            self._owed.popleft()

    def _until_next(self) -> float:
        looks = [pace.next_at for lane, pace in self._paces.items() if self._line(lane).room]
        soonest = min([self._renew_at, self._sweep_at, self._poll_at, *looks])
        return 0.0 if self._owed else max(0.0, soonest - time.monotonic())

    def _hear(self, seconds: float) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            self._stopping = True
        try:
            heard = self._inbox.get(timeout=seconds) if seconds > 0 else self._inbox.get_nowait()
            while True:
                self._note(heard)
                heard = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _note(self, heard: Heard) -> None:
        if isinstance(heard, Report):
            if heard.delivery is not None:
                self._owed.append(heard)
            elif heard.lane in self._paces:
                self._paces[heard.lane].now()
        elif heard is not None:
            if heard - self._known:
                self._renew_at = 0.0
            for lane in (heard or self._paces.keys()) & self._paces.keys():
                self._paces[lane].now()

    def _end(self) -> None:
        self._listener.stop()
        for line in self._lines.values():
            line.stop()
        patience = 2 * self._settings.timeout + 1
        until = time.monotonic() + patience
        while self._busy() and time.monotonic() < until:
            self._hear(min(0.1, until - time.monotonic()))
            self._safely(self._write_back)
        self._upkeep.stop(patience)
        self._safely(self._let_go)
        connections[self.using].close()
        emit("relay.stopped", using=self.using, owner=str(self.owner))

    def _busy(self) -> bool:
        return bool(self._owed) or any(line.held for line in self._lines.values())

    def _let_go(self) -> None:
        for line in self._lines.values():
            for batch in line.held:
                # Its line is stuck; nobody will say any more whether it arrived.
                write_back(self.using, line.lane, Delivery(unsent=tuple(batch)))
        leads.resign(self.using, self.owner)
