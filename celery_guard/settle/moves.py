"""The moves of an effect: conditional UPDATEs that say whether they happened."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from datetime import datetime

from django.db import connections, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, Greatest

from celery_guard.faults import fault_point
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.models import Job
from celery_guard.jobs.running import Hold
from celery_guard.jobs.states import Reason, State
from celery_guard.settle.models import Effect
from celery_guard.settle.naming import hashed
from celery_guard.settle.provider import Provider
from celery_guard.settle.states import OPEN, EffectState


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a body asks for: the name and item that make it one, and the request's fingerprint."""

    name: str
    item: str = ""
    request: str = ""
    provider: Provider


def prepare(hold: Hold, wish: Wish, key: str) -> Effect:
    """The row of ``wish``, made now or found: at most one per job, name and item."""
    item = str(wish.item)
    found = _made_or_found(hold, wish, key, item)
    if (found.name, found.item) == (wish.name, item):
        return found
    # Another item's, to a database that compares without regard to case, accents or a space at
    # the end. Its row comes first in every attempt, so this one is found by its hash in every attempt.
    return _made_or_found(hold, wish, key, hashed(item, f"{wish.name}\n{item}"))


def _made_or_found(hold: Hold, wish: Wish, key: str, item: str) -> Effect:
    effects = Effect.objects.using(hold.using)
    row = Effect(
        job_id=hold.job_id,
        name=wish.name,
        item=item,
        request=wish.request,
        provider=wish.provider.name,
        provider_key=key,
        recovery=wish.provider.recovery,
        created_at=DatabaseNow(),
    )
    effects.bulk_create([row], ignore_conflicts=True)
    return effects.get(job_id=hold.job_id, name=wish.name, item=item)


def hold_for(hold: Hold, seconds: float) -> bool:
    """Make the lease last at least ``seconds`` from now; False when the job isn't held."""
    jobs = Job.objects.using(hold.using).filter(**_held(hold))
    return jobs.update(lease_until=Greatest(F("lease_until"), in_seconds(seconds))) == 1


def mark_sent(hold: Hold, effect: Effect, provider: Provider) -> bool:
    """Say, before the call, that it may be under way.

    Only while the attempt holds its job for longer than the call may take: a process that was
    frozen and wakes up sends within that time, or not at all.
    """
    holder = Job.objects.using(hold.using).filter(
        **_held(hold), lease_until__gt=in_seconds(provider.timeout)
    )
    found = Effect.objects.using(hold.using).filter(
        Exists(holder), pk=effect.pk, state=effect.state
    )
    changed = found.filter(fence=effect.fence).update(
        state=EffectState.SENT,
        fence=hold.fence,
        recovery=provider.recovery,
        sent_at=DatabaseNow(),
        # The provider's memory began with the first call under this key.
        key_until=Coalesce("key_until", in_seconds(provider.key_window)),
        look_at=None,
    )
    return changed == 1


def confirm(
    using: str, effect_id: int, answer: str | None, *, by: str = "", note: str = ""
) -> bool:
    """Keep the provider's answer. Evidence is welcome from anyone, whoever holds the job now."""
    # A person has none; one that was reopened has the answer of its first confirmation.
    kept = F("answer") if answer is None else Value(answer)
    open_ones = _in(using, effect_id, OPEN)
    return _settle(open_ones, EffectState.CONFIRMED, answer=kept, by=by, note=note)


def confirm_against(hold: Hold, effect: Effect, answer: str) -> bool:
    """Keep the answer to the held attempt's own call, about which a person has said meanwhile that
    nothing happened; False where it has been sent anew since then."""
    unsent = _in(hold.using, effect.pk, (EffectState.PREPARED,))
    unsent = unsent.filter(fence=hold.fence, version=effect.version)
    return _settle(unsent, EffectState.CONFIRMED, answer=Value(answer))


def reject(using: str, effect_id: int, note: str) -> bool:
    """Keep the provider's final no."""
    sent = _in(using, effect_id, (EffectState.SENT, EffectState.UNKNOWN))
    return _settle(sent, EffectState.REJECTED, note=note)


def not_applied(using: str, effect_id: int, *, by: str = "", note: str = "") -> bool:
    """It is certain that nothing happened: it may be sent again."""
    return _settle(_in(using, effect_id, OPEN), EffectState.PREPARED, by=by, note=note)


def not_held(using: str, effect_id: int, *, by: str, note: str) -> bool:
    """The same of a job that has succeeded: nobody will send it again, so it ends as a no."""
    done = Job.objects.using(using).filter(pk=OuterRef("job_id"), state=State.SUCCEEDED)
    taken_back = _in(using, effect_id, OPEN).filter(Exists(done))
    return _settle(taken_back, EffectState.REJECTED, answer=F("answer"), by=by, note=note)


def send_anew(using: str, effect_id: int, *, by: str, note: str) -> bool:
    """The same of one that was reopened: it needs another key, for the provider knows the old one."""
    taken_back = _in(using, effect_id, OPEN).filter(sent_at__lt=F("reopened_at"))
    return _settle(
        taken_back,
        EffectState.PREPARED,
        by=by,
        note=note,
        version=F("version") + Value(1),
        provider_key="",
        key_until=None,
    )


def give_key(using: str, effect: Effect, key: str) -> None:
    """Write down the key of a new version; its task alone can make it."""
    Effect.objects.using(using).filter(
        pk=effect.pk, version=effect.version, provider_key=""
    ).update(provider_key=key)


def reopen(using: str, provider_key: str, *, by: str, note: str) -> list[int]:
    """A confirmation is taken back, once in an effect's life; a person decides what it means."""
    found = Effect.objects.using(using).filter(
        provider_key=provider_key, state=EffectState.CONFIRMED, reopened_at=None
    )
    ids = found.order_by("pk").values_list("pk", flat=True)
    return [
        pk
        for pk in list(ids)
        if found.filter(pk=pk).update(
            state=EffectState.MANUAL,
            reopened_at=DatabaseNow(),
            reopened_by=by[:255],
            reopened_for=note,
            note=note,
        )
    ]


def _in(using: str, effect_id: int, before: tuple[EffectState, ...]) -> QuerySet[Effect]:
    return Effect.objects.using(using).filter(pk=effect_id, state__in=before)


def _settle(
    effects: QuerySet[Effect],
    after: EffectState,
    *,
    answer: Combinable | None = None,
    by: str = "",
    note: str = "",
    **changes: object,
) -> bool:
    changed = effects.update(
        **changes,
        state=after,
        answer=answer,
        settled_by=by[:255],
        note=note,
        settled_at=DatabaseNow(),
        look_at=None,
        looks=0,
    )
    return changed == 1


def not_known(using: str, effect: Effect, provider: Provider, note: str, *, looks: int = 0) -> bool:
    """Nobody knows: look again later, or call a person where that is all that is left."""
    alone = provider.recovery == "manual"
    wait = min(3600.0, provider.settle_after * 2**looks)
    rows = Effect.objects.using(using).filter(
        pk=effect.pk, state__in=(EffectState.SENT, EffectState.UNKNOWN)
    )
    changed = rows.update(
        state=EffectState.MANUAL if alone else EffectState.UNKNOWN,
        look_at=None if alone else in_seconds(wait),
        looks=looks,
        note=note,
    )
    return changed == 1


def call_a_person(using: str, effect: Effect, note: str) -> bool:
    """Stop asking: a person has to decide."""
    open_ones = Effect.objects.using(using).filter(pk=effect.pk, state__in=OPEN)
    return open_ones.update(state=EffectState.MANUAL, look_at=None, note=note) == 1


def ask_anew(using: str, effect: Effect, request: str, key: str) -> bool:
    """A corrected request after a final no is another operation to the provider: another key."""
    refused = Effect.objects.using(using).filter(
        pk=effect.pk, state=EffectState.REJECTED, version=effect.version
    )
    changed = refused.update(
        state=EffectState.PREPARED,
        request=request,
        provider_key=key,
        version=F("version") + Value(1),
        key_until=None,
        note="",
    )
    return changed == 1


def wait_for_answer(hold: Hold) -> bool:
    """Move the held job to reconciling: it keeps its place and nobody runs it."""
    jobs = Job.objects.using(hold.using).filter(**_held(hold))
    return jobs.update(state=State.RECONCILING, reason=Reason.UNCERTAIN, lease_until=None) == 1


def look_again(using: str, lanes: Collection[str], limit: int) -> int:
    """Run the reconciling jobs again whose open effects are due for a look, or settled.

    The body comes to the same effect and asks the provider. Returns how many jobs moved.
    """
    effects = Effect.objects.using(using)
    due = effects.filter(state=EffectState.UNKNOWN, look_at__lte=DatabaseNow())
    open_ones = effects.filter(state__in=OPEN)
    with transaction.atomic(using=using):
        # The lanes' index ranges of held jobs hold the reconciling ones and no ended row.
        held = Job.objects.using(using).filter(lane__in=lanes, sent_at__isnull=False)
        jobs = held.filter(state=State.RECONCILING)
        ready = jobs.filter(Q(pk__in=due.values("job_id")) | ~Q(pk__in=open_ones.values("job_id")))
        # One that somebody holds is just being decided: the next look finds it, or not.
        skips = connections[using].features.has_select_for_update_skip_locked
        free = ready.order_by("pk").select_for_update(skip_locked=skips)
        ids = list(free.values_list("pk", flat=True)[:limit])
        moved = jobs.filter(pk__in=ids).update(
            state=State.WAITING,
            reason=Reason.UNCERTAIN,
            sent_at=None,
            due_at=DatabaseNow(),
            owner=None,
            running_key=None,
            fence=F("fence") + Value(1),
        )
        if ids:
            fault_point("settle.freeing", *ids)
    return moved


def database_time(using: str, effect: Effect) -> datetime:
    """The database's clock now."""
    now: datetime = (
        Effect.objects.using(using).filter(pk=effect.pk).values_list(DatabaseNow(), flat=True).get()
    )
    return now


def _held(hold: Hold) -> dict[str, object]:
    return {
        "pk": hold.job_id,
        "state": State.RUNNING,
        "fence": hold.fence,
        "owner": hold.owner,
    }
