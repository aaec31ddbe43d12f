"""The relay without a loop: send what is due now, do the upkeep that is due, and return."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Collection

from celery import Celery

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs.release import resend
from celery_guard.jobs.sending import Lead, Sending, next_due
from celery_guard.relay import lead as leads
from celery_guard.relay.broker_app import ledgers, load_app
from celery_guard.relay.duties import Rota
from celery_guard.relay.fair import Turns
from celery_guard.relay.placing import Places
from celery_guard.relay.presence import live_workers
from celery_guard.relay.publish import publisher_for
from celery_guard.relay.publish.deliver import deliver
from celery_guard.relay.steering import Freeing
from celery_guard.relay.telling import to_be_told
from celery_guard.relay.write_back import write_back


def upkeep_once() -> None:
    """What the beat task does, for every ledger of the default app."""
    app = load_app()
    for using in ledgers(app):
        relay_once(using, app=app, patience=0.0)


def relay_once(
    using: str,
    *,
    app: Celery | None = None,
    lanes: Collection[str] | None = None,
    patience: float | None = None,
) -> int:
    """Send what is due in lanes that nobody else leads; return how many messages went out.

    Also does the duties that are due.

    :param patience: seconds to wait for lanes that hold due jobs and are led by another relay;
        None: as long as the lease of one that died can last.
    """
    drain = _Drain(using, app or load_app())
    lease = guard_settings().relay.lead_lease
    until = time.monotonic() + (lease if patience is None else patience)
    try:
        wanted = leads.find_lanes(using) if lanes is None else set(lanes)
        while (due := drain.pass_over(wanted)) and time.monotonic() < until:
            # Due, but led by another relay: it sends them, or its lease runs out.
            wanted = due
            time.sleep(0.05)
        Rota(using).do_what_is_due()
    finally:
        drain.end()
    return drain.sent


class _Drain:
    def __init__(self, using: str, app: Celery) -> None:
        self.using = using
        self.owner = uuid.uuid4()
        self.sent = 0
        self._places = Places(using)
        # Kept from batch to batch: each goes on behind the tenants of the last one.
        self._turns: defaultdict[str, Turns] = defaultdict(lambda: Turns(using, self._places))
        self._settings = guard_settings().relay
        self._publisher = publisher_for(app, self._settings.timeout)

    def pass_over(self, lanes: Collection[str]) -> set[str]:
        """Drain those lanes that can be led; return those that can't and hold due jobs."""
        taken = leads.take(self.using, self.owner, lanes, self._settings.lead_lease)
        Freeing(self.using).free(taken)
        for lead in taken.values():
            self._drain(lead)
        others = sorted(set(lanes) - taken.keys())
        return {lane for lane, due in next_due(self.using, others).items() if due <= 0}

    def _drain(self, lead: Lead) -> None:
        grace = guard_settings().sweep.resend_grace
        if not self._send(lead, resend(self.using, lead, self._settings.batch, grace)):
            return
        if not self._send(lead, to_be_told(self.using, lead)):
            return
        while batch := self._release(lead):
            if not self._send(lead, batch):
                return

    def _release(self, lead: Lead) -> list[Sending]:
        leads.renew(self.using, self.owner, self._settings.lead_lease)
        workers = live_workers(self.using)
        self._places.look([lead.lane])
        return self._turns[lead.lane].release(lead, self._settings.batch, workers)

    def _send(self, lead: Lead, batch: list[Sending]) -> bool:
        outgoing = [s for s in batch if s.sent_at is not None or s.awaited]
        if batch:
            fault_point("relay.marked", *(s.id for s in batch))
        delivery = deliver(self._publisher, outgoing, self._settings.budget)
        fault_point("relay.published", *(s.id for s in outgoing))
        write_back(self.using, lead.lane, delivery)
        self.sent += len(delivery.sent)
        if delivery.outage:
            emit("relay.outage", lane=lead.lane, error=delivery.outage)
        return not delivery.outage

    def end(self) -> None:
        """Give the lanes back and close the broker's connection."""
        self._publisher.close()
        leads.resign(self.using, self.owner)
