"""The release of a lane that tenants share.

Only while the window is bounded: where the broker may hold everything there is nothing to give
out. With two or more tenants waiting the window shrinks to little more than the workers' slots,
since what is with the broker already goes in the broker's order.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from celery_guard.conf import Tenants, guard_settings
from celery_guard.enqueue.admission.limits import allowance_of
from celery_guard.jobs import sharing
from celery_guard.jobs.heads import WIDER
from celery_guard.jobs.release import release, sees_others
from celery_guard.jobs.sending import Lead, Sending, unsend
from celery_guard.jobs.sharing import HEAD_ONLY, Stretch
from celery_guard.relay.costs import Costs
from celery_guard.relay.placing import Places
from celery_guard.relay.presence import Worker, slots_of, window_of
from celery_guard.relay.reserve import Bound, SmallOnes, bound_of
from celery_guard.relay.shares import Claimant, share
from celery_guard.relay.steering import is_steered
from celery_guard.relay.virtual_time import VirtualTime

MOST = 500
"""Most tenants that one look considers; the next one goes on behind them."""
KEEP = 5.0
"""Seconds for which a tenant's own settings are kept."""
FAR = 2.0
"""Seconds from one look far into a lane, for jobs without a tenant, to the next."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """How one look gives; by turns where ``tenants`` wait."""

    lead: Lead
    window: int | None
    going: Callable[..., list[Sending]]
    tenants: Collection[str] | None = None
    nobodys: Stretch | None = None

    def of(self, jobs: Mapping[int, str]) -> _Look:
        """The same for those ``jobs`` alone, each with its tenant."""
        tenants = None if self.tenants is None else set(jobs.values())
        going = functools.partial(self.going, among=jobs)
        return dataclasses.replace(self, tenants=tenants, going=going)


class Turns:
    """The turns of one lane, as its leader gives them. What is kept here is a hint only."""

    def __init__(self, using: str, places: Places) -> None:
        self._using = using
        self._places = places
        self._after = ""
        self._others = False
        self._own: dict[str, tuple[float, Tenants]] = {}
        self._far: dict[str, tuple[float, Stretch | None]] = {}
        self._costs = Costs(using)
        self._time = VirtualTime()
        self._term: int | None = None
        self._small = SmallOnes(using)
        self._spare = sharing.SPARE

    def release(self, lead: Lead, batch: int, workers: Collection[Worker]) -> list[Sending]:
        """Release at most ``batch`` jobs: by turns where tenants wait, else oldest first.

        :param workers: those that live; their slots bound what the broker may hold.
        """
        placing = self._places if self._places.strained() else None
        sent = self._release(lead, batch, workers, placing)
        if placing is None:
            self._places.count(sent)
        return sent

    def _release(
        self, lead: Lead, batch: int, workers: Collection[Worker], placing: Places | None
    ) -> list[Sending]:
        window = window_of(lead.lane, workers)
        bound = bound_of(self._using, lead.lane, workers, self._costs)
        # A lane is nearly always without them: then this one statement is all there is to a look.
        alone = placing is None and window is not None and bound is None
        alone = alone and not self._others and sees_others(self._using)
        if alone and (sent := release(self._using, lead, batch, window, alone=True)):
            return sent
        steered = is_steered(self._using, lead.lane)
        going = functools.partial(release, steered=steered, placing=placing)
        tenants = [] if window is None else self._waiting(lead.lane)
        self._others = steered or bool(tenants)
        if alone and not self._others:
            return []
        look = _Look(lead=lead, window=window, going=going)
        if tenants:
            look = self._shared(look, tenants, workers)
        if bound is None:
            return self._give(look, batch)
        return self._give_sized(look, batch, bound)

    def _shared(self, look: _Look, tenants: list[str], workers: Collection[Worker]) -> _Look:
        lane = look.lead.lane
        nobodys = self._nobodys(lane)
        if nobodys is not None:
            tenants.append(sharing.NOBODY)
        slots, window = slots_of(guard_settings().lane(lane).queue, workers), look.window
        if len(tenants) > 1 and slots is not None and window is not None:
            window = min(window, slots + max(2, slots // 2))
        return dataclasses.replace(look, window=window, tenants=tenants, nobodys=nobodys)

    def _give(self, look: _Look, batch: int) -> list[Sending]:
        if look.window is None or look.tenants is None:
            return look.going(self._using, look.lead, batch, look.window)
        held = sharing.held_by_tenant(self._using, look.lead.lane)
        room = min(batch, look.window - sum(held.values()))
        claimants = self._claimants(look.lead, look.tenants, held)
        shares = share(room, claimants)
        self._time.give(shares, claimants)
        nobodys = dataclasses.replace(look.nobodys or HEAD_ONLY, spare=self._spare)
        given = {"shares": shares, "nobodys": nobodys}
        sent = look.going(self._using, look.lead, batch, look.window, **given)
        self._charge(sent)
        # None of them went, perhaps because others hold the oldest: the next look goes further.
        missed = shares.get(sharing.NOBODY) and all(sending.tenant for sending in sent)
        self._spare = min(sharing.FAR, WIDER * self._spare) if missed else sharing.SPARE
        return sent

    def _give_sized(self, look: _Look, batch: int, bound: Bound) -> list[Sending]:
        # So many of any size can't be too many long ones; the rest is for the small ones alone.
        sent = self._give(look, min(batch, bound.longs)) if bound.longs else []
        try:
            left = batch - len(sent)
            due = self._small.due(look.lead.lane, bound.tasks) if left else {}
            return sent + (self._give(look.of(due), left) if due else [])
        except Exception:
            # Marked already, and nobody else would send them before they count as lost.
            unsend(self._using, sent)
            raise

    def _nobodys(self, lane: str) -> Stretch | None:
        near = sharing.has_nobodys(self._using, lane, HEAD_ONLY)
        if near is not None:
            return HEAD_ONLY if near else None
        now = time.monotonic()
        until, stretch = self._far.get(lane, (0.0, None))
        if until <= now:
            stretch = sharing.find_nobodys(self._using, lane)
            self._far[lane] = (now + FAR, stretch)
        # What is gone by now must not be given places that others wait for.
        if stretch is None or not sharing.has_nobodys(self._using, lane, stretch):
            return None
        return stretch

    def _waiting(self, lane: str) -> list[str]:
        found = sharing.waiting_tenants(self._using, lane, after=self._after, most=MOST)
        if len(found) < MOST and self._after:
            # Past the last one: go on with the first.
            more = sharing.waiting_tenants(self._using, lane, after="", most=MOST - len(found))
            found = list(dict.fromkeys([*found, *more]))
            self._after = ""
        elif len(found) == MOST:
            self._after = found[-1]
        return found

    def _claimants(
        self, lead: Lead, tenants: Collection[str], held: Mapping[str, int]
    ) -> dict[str, Claimant]:
        if self._term != lead.term:
            # Others have led meanwhile.
            self._term, self._time = lead.term, VirtualTime()
        self._costs.refresh()
        self._time.begin({tenant: self._claimant(tenant, held) for tenant in held})
        found = {tenant: self._claimant(tenant, held) for tenant in tenants}
        return {
            tenant: dataclasses.replace(claimant, mark=self._time.mark_of(tenant))
            for tenant, claimant in found.items()
        }

    def _claimant(self, tenant: str, held: Mapping[str, int]) -> Claimant:
        own = self._settings_of(tenant)
        most = own.in_flight if tenant else None
        cost = self._time.cost_of(tenant, self._costs.usual)
        return Claimant(held=held.get(tenant, 0), weight=own.weight, most=most, cost=cost)

    def _charge(self, sent: Iterable[Sending]) -> None:
        costs: dict[str, list[float]] = {}
        for sending in sent:
            if sending.sent_at is not None:
                costs.setdefault(sending.tenant, []).append(self._costs.of(sending.task))
        for tenant, mine in costs.items():
            self._time.charge(tenant, self._settings_of(tenant).weight, mine)

    def _settings_of(self, tenant: str) -> Tenants:
        if not tenant:
            return guard_settings().tenants
        now = time.monotonic()
        until, own = self._own.get(tenant, (0.0, guard_settings().tenants))
        if until < now:
            own = allowance_of(tenant)
            self._forget(now)
            self._own[tenant] = (now + KEEP, own)
        return own

    def _forget(self, now: float) -> None:
        if len(self._own) > 2 * MOST:
            self._own = {name: kept for name, kept in self._own.items() if kept[0] > now}
