"""Begin a bulk replay, and end it early."""

from __future__ import annotations

from django.db.models import Max, Q

from celery_guard.events import emit
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.models import Job
from celery_guard.rate import Rate, parse_rate
from celery_guard.settle.replay.choosing import Wanted
from celery_guard.settle.replay.models import ACTIVE, Replay, ReplayState

PACE = "10/s"
AT_ONCE = 20
"""Replays under way at one time."""
_LENGTHS = {"task": 255, "mark": 32, "lane": 64, "tenant": 255, "reason": 500, "author": 150}


def start(using: str, wanted: Wanted, *, pace: str, reason: str, author: str) -> Replay:
    """Ask for a bulk replay of what matches now; the relays do it, and go on whoever dies.

    :param pace: jobs that are moved at most, such as ``"10/s"`` or ``"100/m"``.
    :raises ValueError: naming every fault; nothing was written.
    """
    words = {**wanted.named(), "reason": reason.strip(), "author": author.strip()}
    faults = list(_faults(wanted, words))
    rate = _rate(pace, faults)
    if Replay.objects.using(using).filter(state__in=ACTIVE).count() >= AT_ONCE:
        faults.append(f"{AT_ONCE} replays are under way; let some end first")
    if faults or rate is None:
        raise ValueError("; ".join(faults))
    last = Job.objects.using(using).aggregate(last=Max("pk"))["last"] or 0
    replay = Replay.objects.using(using).create(
        pace=1 / rate.interval,
        created_at=DatabaseNow(),
        next_at=DatabaseNow(),
        up_to=last,
        **words,
    )
    replay.refresh_from_db(using=using)
    emit("settle.replay_started", replay=replay.pk, scope=replay.scope, by=replay.author)
    return replay


def _faults(wanted: Wanted, words: dict[str, str]) -> list[str]:
    faults = [f"{name} is needed" for name in ("reason", "author") if not words[name]]
    if not wanted.named():
        faults.append("name a task, a group, a lane or a tenant")
    return faults + [
        f"{name} may have {_LENGTHS[name]} characters, not {len(word)}"
        for name, word in words.items()
        if len(word) > _LENGTHS[name]
    ]


def _rate(pace: str, faults: list[str]) -> Rate | None:
    try:
        return parse_rate(pace)
    except ValueError as error:
        faults.append(f"pace {pace!r} {error}")
        return None


def cancel(using: str, replay_id: int, *, by: str) -> bool:
    """End a replay where it is: what it has moved stays moved, the rest stays as it is.

    Waits for a step that is being done; after it none begins.
    """
    active = Replay.objects.using(using).filter(Q(state__in=ACTIVE), pk=replay_id)
    ended = active.update(state=ReplayState.CANCELLED, finished_at=DatabaseNow(), ended_by=by[:150])
    if ended:
        emit("settle.replay_cancelled", replay=replay_id, by=by)
    return bool(ended)
