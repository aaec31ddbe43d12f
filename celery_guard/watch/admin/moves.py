"""What an operator may do to jobs: replay what ended without success, cancel what has not ended.

Each move has its own permission, needs a confirmation by POST, takes at most ``JOBS_MOST``
jobs, happens only to jobs that are still in the right state, and says how many moved. A second
click finds nothing left to move.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.jobs import adding, cancelling
from celery_guard.jobs.deadlock import again_on_deadlock
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import RERUNNABLE, State
from celery_guard.outbox import hook
from celery_guard.settle.replay import moving

JOBS_MOST = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OperatorMove:
    """One action: the states it starts from, its permission, the ledger's move."""

    name: str
    permission: str
    before: Sequence[State]
    move: Callable[..., int]
    asks: Sequence[State] = ()
    """States in which the holder of the job is asked to stop instead."""
    button: str | Promise
    title: str | Promise
    question: str | Promise

    @property
    def required(self) -> str:
        """The permission as Django asks for it."""
        return f"celery_guard.{self.permission}"


REPLAY = OperatorMove(
    name="replay_jobs",
    permission="replay_job",
    before=RERUNNABLE,
    move=moving.replay,
    button=gettext_lazy("Replay"),
    title=gettext_lazy("Replay jobs"),
    question=gettext_lazy(
        "These jobs will run again with the same key and the same arguments; their history is "
        "kept. Jobs that did not fail, whose message was purged, or that have an effect without an "
        "answer stay as they are."
    ),
)
CANCEL = OperatorMove(
    name="cancel_jobs",
    permission="cancel_job",
    before=(State.WAITING,),
    asks=(State.RUNNING, State.RECONCILING),
    move=adding.cancel,
    button=gettext_lazy("Cancel"),
    title=gettext_lazy("Cancel jobs"),
    question=gettext_lazy(
        "Those that wait will never run unless they are replayed. Those that run are asked to "
        "stop, and end where their body looks. Jobs that have ended stay as they are."
    ),
)
MOVES = {move.name: move for move in (REPLAY, CANCEL)}


def ask_or_do(
    move: OperatorMove, page: ModelAdmin[Job], request: HttpRequest
) -> HttpResponse | None:
    """Show what ``move`` would do, or do it when the operator has confirmed.

    :raises PermissionDenied: without the move's own permission.
    """
    if not request.user.has_perm(move.required):
        raise PermissionDenied
    ids = [int(i) for i in request.POST.getlist(ACTION_CHECKBOX_NAME) if i.isdecimal()]
    if len(ids) > JOBS_MOST or request.POST.get("select_across") == "1":
        text = _("At most %(most)d jobs can be moved at once.") % {"most": JOBS_MOST}
        page.message_user(request, text, messages.ERROR)
    elif request.POST.get("confirmed") == "yes":
        moved = _do(move, request, ids)
        _tell(page, request, move, len(ids), moved, _ask(move, request, ids))
    else:
        return _confirmation(move, page, request, page.get_queryset(request).filter(pk__in=ids))
    return None


def _do(move: OperatorMove, request: HttpRequest, ids: Sequence[int]) -> int:
    using = guard_settings().using
    moved, held = again_on_deadlock(lambda: _move(move, using, ids), using=using)
    if moved:
        emit("watch.operator_moved", move=move.name, by=str(request.user), jobs=moved)
        _audit(move, request, held)
    return moved


def _move(move: OperatorMove, using: str, ids: Sequence[int]) -> tuple[int, list[Job]]:
    jobs = Job.objects.using(using).filter(pk__in=ids, state__in=move.before)
    # A row that a worker or relay holds is about to move by itself: not now.
    skip = connections[using].features.has_select_for_update_skip_locked
    with transaction.atomic(using=using):
        held = list(jobs.order_by("pk").select_for_update(skip_locked=skip))
        moved = move.move(using, *(job.pk for job in held))
        if move is REPLAY:
            hook.note(using, *{job.lane for job in held})
    return moved, held


def _ask(move: OperatorMove, request: HttpRequest, ids: Sequence[int]) -> int:
    using = guard_settings().using
    held = Job.objects.using(using).filter(pk__in=ids, state__in=move.asks).order_by("pk")
    # One that has come back to waiting meanwhile is cancelled there and then, and counts too.
    asked = [job for job in held if cancelling.ask(using, job.public_id) != "over"]
    if asked:
        emit("watch.operator_asked", move=move.name, by=str(request.user), jobs=len(asked))
        _audit(move, request, asked)
    return len(asked)


def _audit(move: OperatorMove, request: HttpRequest, jobs: Sequence[Job]) -> None:
    LogEntry.objects.log_actions(
        request.user.pk,  # type: ignore[arg-type]
        jobs,
        CHANGE,
        change_message=str(move.title),
    )


def _tell(
    page: ModelAdmin[Job],
    request: HttpRequest,
    move: OperatorMove,
    chosen: int,
    moved: int,
    asked: int,
) -> None:
    text = ngettext(
        "%(title)s: %(moved)d of %(asked)d job moved.",
        "%(title)s: %(moved)d of %(asked)d jobs moved.",
        chosen,
    ) % {"title": move.title, "moved": moved, "asked": chosen}
    if asked:
        more = ngettext("%d that runs was asked to stop.", "%d that run were asked to stop.", asked)
        text = f"{text} {more % asked}"
    whole = moved + asked == chosen
    page.message_user(request, text, messages.SUCCESS if whole else messages.WARNING)


def _confirmation(
    move: OperatorMove, page: ModelAdmin[Job], request: HttpRequest, jobs: QuerySet[Job]
) -> HttpResponse:
    found = list(jobs.order_by("-pk")[:JOBS_MOST])
    context = {
        **page.admin_site.each_context(request),
        "title": move.title,
        "move": move,
        "jobs": found,
        "movable": sum(job.state in move.before for job in found),
        "askable": sum(job.state in move.asks for job in found),
        "opts": Job._meta,
        "media": page.media,
        "checkbox": ACTION_CHECKBOX_NAME,
    }
    return TemplateResponse(request, "admin/celery_guard/job/confirm_move.html", context)
