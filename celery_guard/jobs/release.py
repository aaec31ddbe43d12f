"""The release: due jobs become sent, in one statement, before the broker is spoken to."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

from django.db import connections, transaction

from celery_guard.jobs import direct, folding, on_wire, release_held, release_portably, sharing
from celery_guard.jobs.deadlock import again_on_deadlock
from celery_guard.jobs.following import Key, live
from celery_guard.jobs.models import Job
from celery_guard.jobs.placing import Placing
from celery_guard.jobs.sending import Lead, Sending, unsend
from celery_guard.jobs.sharing import HEAD_ONLY, Stretch
from celery_guard.jobs.states import Reason, State

EXPIRED = json.dumps(
    {
        "type": "JobError",
        "message": "the job expired before it could start",
        "state": State.EXPIRED,
        "reason": Reason.EXPIRED,
    }
)
RESEND_CAP = 3600.0
"""Longest wait of one job between two sendings that no claim answered, in seconds."""

# A function, because planning it took longer than running it: see release_2.sql.
_RELEASE = on_wire.function_of_rows(
    "celery_guard_release_2", "text", "uuid", "int", "int", "int", "boolean", "text"
)
Pick = Callable[..., tuple[list[Sending], set[Key]]]

ROUNDS = 5
"""Most looks of one release that only fold, and send nothing."""
SOME = 20
"""Tenants behind whose keys one look goes on."""


def release(
    using: str,
    lead: Lead,
    batch: int,
    window: int | None,
    *,
    shares: Mapping[str, int] | None = None,
    nobodys: Stretch = HEAD_ONLY,
    steered: bool = False,
    placing: Placing | None = None,
    alone: bool = False,
    among: Mapping[int, str] | None = None,
) -> list[Sending]:
    """Mark the due jobs of a lane as sent, oldest first, and return them.

    Jobs past their expiry end ``expired``. Nothing happens once the lead is lost. Locked rows
    are passed over. Of the due jobs of a coalesce key one is sent at most.

    :param batch: most rows; ``window``: most unfinished jobs the broker may hold, None for all.
    :param shares: most rows of each tenant, instead of both; others get none;
        ``nobodys``: where those without a tenant are.
    :param steered: a hold touches the lane: what it covers is put aside instead of sent.
    :param placing: gives places to the jobs of dependencies that can't start yet.
    :param alone: only if no hold touches the lane and no tenant waits in it (where
        :func:`sees_others`), so that whoever gives nothing else need not ask for them before.
    :param among: only those, given oldest first with their tenants; None: whoever is due.
    """
    pick: Pick = _pick_alone if alone else _pick
    if among is not None:
        pick = functools.partial(release_portably.release, among=among)
    if steered or placing is not None:
        held = functools.partial(release_held.release, among=among)
        pick = functools.partial(held, steered=steered, placing=placing)
    for turn in range(ROUNDS):
        sendings, keys = pick(using, lead, batch, window, EXPIRED, shares, nobodys)
        if keys:
            try:
                folded = _fold(using, lead, keys, _room(using, shares, sendings))
                sendings += folded
                if among is None and not folded and (turn or sendings):
                    _fold_behind(using, lead, keys, shares, nobodys)
            except Exception:
                # Marked already, and nobody else would send them before they count as lost.
                unsend(using, sendings)
                raise
        if sendings or not keys:
            return sendings
    return []


def sees_others(using: str) -> bool:
    """Whether a release on ``using`` can be asked for ``alone``: PostgreSQL's statement can."""
    return connections[using].vendor == "postgresql"


def _pick_alone(
    using: str, lead: Lead, batch: int, window: int | None, *_: object
) -> tuple[list[Sending], set[Key]]:
    return _release(using, lead, batch, window, alone=True)


def _release(
    using: str, lead: Lead, batch: int, window: int | None, *, alone: bool
) -> tuple[list[Sending], set[Key]]:
    given = (lead.lane, lead.owner, lead.term, batch, window, alone, EXPIRED)
    return _read(on_wire.rows_of(connections[using], _RELEASE, given))


def _fold_behind(
    using: str,
    lead: Lead,
    keys: set[Key],
    shares: Mapping[str, int] | None,
    nobodys: Stretch,
) -> None:
    # None of the keys at the head is due. With few places left a look at a time would take long to
    # get past thousands of such: those behind them are put off too, many at once.
    tenants = None
    if shares is not None:
        found = live(using, keys).filter(lane=lead.lane, tenant__in=shares)
        tenants = found.values_list("tenant", flat=True).distinct()[:SOME]
    if behind := sharing.keys_at_the_head(using, lead.lane, tenants, nobodys):
        _fold(using, lead, behind, Counter())


def _pick(
    using: str,
    lead: Lead,
    batch: int,
    window: int | None,
    expired: str,
    shares: Mapping[str, int] | None,
    nobodys: Stretch,
) -> tuple[list[Sending], set[Key]]:
    if connections[using].vendor != "postgresql":
        return release_portably.release(using, lead, batch, window, expired, shares, nobodys)
    if shares is not None:
        statement = _sql("release_shares") + _sql("mark")
        return _send(using, statement, lead, **sharing.as_arrays(shares, nobodys))
    return _release(using, lead, batch, window, alone=False)


def _fold(using: str, lead: Lead, keys: set[Key], room: Counter[str] | None) -> list[Sending]:
    # On MariaDB whoever cancels a request of the key comes to its row by another index.
    return again_on_deadlock(lambda: _fold_once(using, lead, keys, room), using=using)


def _fold_once(using: str, lead: Lead, keys: set[Key], room: Counter[str] | None) -> list[Sending]:
    with transaction.atomic(using=using):
        if not release_portably.leads(using, lead).exists():
            return []
        folded = folding.fold(using, lead.lane, keys)
        if room is not None:
            # The newest request of a key may be another tenant's than the one that was picked. It
            # speaks for the others all the same, and waits for a share of its tenant.
            folded = _within(room.copy(), folded, _tenants(using, folded))
        return release_portably.mark(using, folded, EXPIRED)


def _room(
    using: str, shares: Mapping[str, int] | None, sendings: list[Sending]
) -> Counter[str] | None:
    if shares is None:
        return None
    sent = _tenants(using, [sending.id for sending in sendings if sending.sent_at is not None])
    return Counter(shares) - Counter(sent.values())


def _within(room: Counter[str], jobs: list[int], tenants: Mapping[int, str]) -> list[int]:
    kept = []
    for job in jobs:
        if room[tenants[job]] > 0:
            room[tenants[job]] -= 1
            kept.append(job)
    return kept


def _tenants(using: str, jobs: list[int]) -> dict[int, str]:
    if not jobs:
        return {}
    return dict(Job.objects.using(using).filter(pk__in=jobs).values_list("pk", "tenant"))


def resend(using: str, lead: Lead, batch: int, grace: float) -> list[Sending]:
    """Mark as sent again what the evidence on the lead's row says was lost, oldest first.

    :param grace: seconds before the first repetition; doubled for each one after it.
    """
    if connections[using].vendor != "postgresql":
        return release_portably.resend(using, lead, batch, grace, RESEND_CAP, EXPIRED)
    statement = _sql("resend") + _sql("mark")
    return _send(using, statement, lead, batch=batch, grace=grace, cap=RESEND_CAP)[0]


def _send(using: str, statement: str, lead: Lead, **given: Any) -> tuple[list[Sending], set[Key]]:
    mine = {"lane": lead.lane, "owner": lead.owner, "term": lead.term, "expired": EXPIRED}
    return _read(direct.all_returned(connections[using], statement, {**mine, **given}))


def _read(rows: list[tuple[Any, ...]]) -> tuple[list[Sending], set[Key]]:
    keys = {(row[3], row[0]) for row in rows if row[0] is not None}
    return [_sending(*row[1:]) for row in rows if row[0] is None], keys


def _sending(*row: Any) -> Sending:
    return Sending(
        id=row[0],
        public_id=row[1],
        task=row[2],
        plain=row[3],
        awaited=row[4],
        state=row[5],
        sent_at=row[6],
        sends=row[7],
        message_id=row[8],
        body=row[9] or b"",
        envelope=row[10],
        dependency=row[11],
        # The function, which is not changed once released, tells of none.
        tenant=row[12] if len(row) > 12 else "",
    )


@functools.cache
def _sql(name: str) -> str:
    text = resources.files("celery_guard.jobs").joinpath("sql", f"{name}.sql").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
