"""The release where there is no ``UPDATE … RETURNING``: lock by id, mark, read; one transaction.

MariaDB skips locked rows; SQLite has one writer at a time and nothing to skip.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import connections, transaction
from django.db.models import BooleanField, ExpressionWrapper, F, Q, QuerySet, Value

from celery_guard.jobs import heads, sharing
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.following import Key
from celery_guard.jobs.models import Job
from celery_guard.jobs.sending import Lead, Sending
from celery_guard.jobs.sharing import HEAD_ONLY, Stretch
from celery_guard.jobs.states import Reason, State

_COLUMNS = ("pk", "task", "coalesce_key")


def release(
    using: str,
    lead: Lead,
    batch: int,
    window: int | None,
    expired: str,
    shares: Mapping[str, int] | None = None,
    nobodys: Stretch = HEAD_ONLY,
    *,
    among: Mapping[int, str] | None = None,
) -> tuple[list[Sending], set[Key]]:
    """The due jobs that are sent as they are, and the coalesce keys of those to be folded.

    :param among: only those, given oldest first with their tenants; None: whoever is due.
    """
    with transaction.atomic(using=using):
        if not leads(using, lead).exists():
            return [], set()
        rows: Sequence[tuple[Any, ...]]
        if shares is not None:
            rows = heads.locked(using, lead.lane, shares, nobodys, *_COLUMNS, among=among)
        else:
            rows = _oldest(using, lead.lane, batch, window, among)
        alone = [pk for pk, _, key in rows if key is None]
        return mark(using, alone, expired), {
            (task, key) for _, task, key in rows if key is not None
        }


def _oldest(
    using: str, lane: str, batch: int, window: int | None, among: Collection[int] | None
) -> list[tuple[Any, ...]]:
    if window is not None:
        batch = max(0, min(batch, window - sharing.held(using, lane).count()))
    due = sharing.due(using, lane)
    if among is not None:
        due = due.filter(pk__in=list(among))
    skips = connections[using].features.has_select_for_update_skip_locked
    rows = due.order_by("due_at").select_for_update(skip_locked=skips)
    return list(rows.values_list(*_COLUMNS)[:batch])


def resend(
    using: str, lead: Lead, batch: int, grace: float, cap: float, expired: str
) -> list[Sending]:
    """See :func:`celery_guard.jobs.release.resend`."""
    with transaction.atomic(using=using):
        idle = Q(idle_since__lte=in_seconds(-grace), idle_since__isnull=False)
        evidence = (
            leads(using, lead)
            .annotate(idle=ExpressionWrapper(idle, output_field=BooleanField()))
            .values_list("proven_sent_at", "idle")
            .first()
        )
        if evidence is None:
            return []
        waiting = Job.objects.using(using).filter(lane=lead.lane, state=State.WAITING, plain=False)
        lost = _waited_enough(waiting, grace, cap)
        lost = lost if evidence[1] else _before(lost, evidence[0])
        return mark(using, _lock(using, lost.order_by("sent_at"), batch), expired)


def leads(using: str, lead: Lead) -> QuerySet[Any]:
    """The row that says that ``lead`` still holds."""
    rows = apps.get_model("celery_guard", "LaneLead").objects.using(using)
    return rows.filter(
        lane=lead.lane, owner=lead.owner, term=lead.term, lead_until__gt=DatabaseNow()
    )


def _before(jobs: QuerySet[Job], proven: datetime | None) -> QuerySet[Job]:
    return jobs.filter(sent_at__lt=proven) if proven else jobs.none()


def _waited_enough(jobs: QuerySet[Job], grace: float, cap: float) -> QuerySet[Job]:
    jobs = jobs.annotate(unanswered=F("sends") - F("starts") - Value(1))
    steps = Q(unanswered__lte=0, sent_at__lte=in_seconds(-min(cap, grace)))
    count, wait = 1, grace * 2
    while wait < cap:
        steps |= Q(unanswered=count, sent_at__lte=in_seconds(-wait))
        count, wait = count + 1, wait * 2
    return jobs.filter(steps | Q(unanswered__gte=count, sent_at__lte=in_seconds(-cap)))


def _lock(using: str, jobs: QuerySet[Job], batch: int) -> list[int]:
    skips = connections[using].features.has_select_for_update_skip_locked
    return list(jobs.select_for_update(skip_locked=skips).values_list("pk", flat=True)[:batch])


def mark(using: str, ids: Sequence[int], expired: str) -> list[Sending]:
    """Mark locked waiting jobs as sent, or expired, and return them in the order of ``ids``."""
    if not ids:
        return []
    picked = Job.objects.using(using).filter(pk__in=ids)
    picked.filter(expires_at__lte=DatabaseNow()).update(
        state=State.EXPIRED,
        reason=Reason.EXPIRED,
        sent_at=None,
        due_at=None,
        finished_at=DatabaseNow(),
        error=expired,
    )
    # One reading of the clock for the whole batch: mates are neither earlier nor later.
    now = picked.annotate(now=DatabaseNow()).values_list("now", flat=True)[0]
    picked.filter(state=State.WAITING).update(sent_at=now, sends=F("sends") + 1)
    rows = {
        row[0]: row
        for row in picked.values_list(
            "pk",
            "public_id",
            "task",
            "plain",
            "awaited",
            "state",
            "sent_at",
            "sends",
            "message_id",
            "message__body",
            "message__envelope",
            "dependency",
            "tenant",
        )
    }
    return [_sending(*rows[pk]) for pk in ids]


def _sending(
    pk: int,
    public_id: UUID,
    task: str,
    plain: bool,
    awaited: bool,
    state: str,
    sent_at: datetime | None,
    sends: int,
    message_id: int | None,
    body: Any,
    envelope: str | None,
    dependency: str,
    tenant: str,
) -> Sending:
    return Sending(
        id=pk,
        public_id=public_id,
        task=task,
        plain=plain,
        awaited=awaited,
        state=state,
        sent_at=sent_at,
        sends=sends,
        message_id=message_id,
        body=bytes(body or b""),
        envelope=envelope,
        dependency=dependency,
        tenant=tenant,
    )
