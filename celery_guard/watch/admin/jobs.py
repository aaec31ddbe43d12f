"""Jobs in the admin: the list, and everything about one of them."""

from __future__ import annotations

import json
import uuid
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.db.models.functions import Length
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from celery_guard.conf import guard_settings
from celery_guard.jobs.models import Attempt, Job
from celery_guard.watch.admin.described import describe
from celery_guard.watch.admin.filters import (
    RARE,
    LaneFilter,
    StateFilter,
    TaskFilter,
    tasks_in_use,
)
from celery_guard.watch.admin.keyset import ReadOnlyAdmin
from celery_guard.watch.admin.moves import CANCEL, MOVES, REPLAY, ask_or_do

ATTEMPTS_MOST = 50


@admin.action(description=gettext_lazy("Replay selected jobs"), permissions=["replay"])
def replay_jobs(
    page: JobAdmin, request: HttpRequest, queryset: QuerySet[Job]
) -> HttpResponse | None:
    """Send what ended without success through its life again."""
    return ask_or_do(REPLAY, page, request)


@admin.action(description=gettext_lazy("Cancel selected jobs"), permissions=["cancel"])
def cancel_jobs(
    page: JobAdmin, request: HttpRequest, queryset: QuerySet[Job]
) -> HttpResponse | None:
    """End what waits."""
    return ask_or_do(CANCEL, page, request)


class JobAdmin(ReadOnlyAdmin):
    """The ledger."""

    actions = (replay_jobs, cancel_jobs)
    list_display = (
        "id",
        "task",
        "state",
        "key",
        "lane",
        "reason",
        "failures",
        "created_at",
        "due_at",
        "finished_at",
    )
    list_display_links = ("id", "task")
    list_filter = (StateFilter, LaneFilter, TaskFilter)
    lookups = ("state", "lane", "task")
    search_fields = ("public_id",)
    search_help_text = gettext_lazy("An exact key, public id or id.")
    fieldsets = (
        (None, {"fields": ("task", "key", "public_id", "lane", "tenant", "standing")}),
        (gettext_lazy("How it ended"), {"fields": ("error_text", "result_size", "survivor_link")}),
        (gettext_lazy("Attempts that were no success"), {"fields": ("attempts",)}),
        (
            gettext_lazy("Times"),
            {
                "fields": (
                    "created_at",
                    "first_due_at",
                    "due_at",
                    "expires_at",
                    "sent_at",
                    "started_at",
                    "lease_until",
                    "finished_at",
                    "answered_at",
                )
            },
        ),
        (
            gettext_lazy("Counts"),
            {
                "fields": (
                    *("starts", "sends", "failures", "lost", "fence"),
                    *("awaited", "plain", "mode"),
                )
            },
        ),
        (gettext_lazy("Message"), {"fields": ("message_facts",)}),
    )
    readonly_fields = (
        "standing",
        "error_text",
        "result_size",
        "survivor_link",
        "attempts",
        "message_facts",
    )

    def is_rare(self, request: HttpRequest) -> bool:
        """Jobs that ended badly are looked for a part of the ledger at a time."""
        return request.GET.get(StateFilter.parameter_name) in RARE

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        """Without the return value, which may be large and is nobody's business here."""
        return super().get_queryset(request).defer("result")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        """Exact names only: each is a look-up in an index."""
        term = search_term.strip()
        return (queryset.filter(_named(term)) if term else queryset), False

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list; a move without its permission is refused, not only left out of the menu."""
        move = MOVES.get(request.POST.get("action", ""))
        if move is not None and not request.user.has_perm(move.required):
            return HttpResponse(_("Not permitted."), status=403)
        return super().changelist_view(request, extra_context)

    def has_replay_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may replay."""
        return request.user.has_perm(REPLAY.required)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the operator may cancel."""
        return request.user.has_perm(CANCEL.required)

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Job | None = None,
    ) -> HttpResponse:
        """The page of one job, with the moves that are open to it and to this operator."""
        state = obj.state if obj is not None else ""
        context["moves"] = [
            move
            for move in MOVES.values()
            if state in move.before and request.user.has_perm(move.required)
        ]
        return super().render_change_form(request, context, add, change, form_url, obj)

    @admin.display(description=gettext_lazy("state"))
    def standing(self, job: Job) -> str:
        """The state, and why."""
        return f"{job.state} ({job.reason})" if job.reason else job.state

    @admin.display(description=gettext_lazy("error"))
    def error_text(self, job: Job) -> str:
        """The stored error: its type and its message."""
        if not job.error:
            return "-"
        try:
            error = json.loads(job.error)
            return f"{error['type']}: {error['message']}"
        except (ValueError, KeyError, TypeError):
            return job.error

    @admin.display(description=gettext_lazy("return value"))
    def result_size(self, job: Job) -> str:
        """How large the stored return value is."""
        rows = Job.objects.using(guard_settings().using).filter(pk=job.pk)
        size = rows.values_list(Length("result"), flat=True).first()
        return "-" if size is None else _("%(size)d characters, not shown") % {"size": size}

    @admin.display(description=gettext_lazy("stands for it"))
    def survivor_link(self, job: Job) -> str:
        """The job that this one echoes."""
        if job.survivor_id is None:
            return "-"
        where = reverse("admin:celery_guard_job_change", args=[job.survivor_id])
        return format_html('<a href="{}">{}</a>', where, job.survivor_id)

    @admin.display(description=gettext_lazy("timeline"))
    def attempts(self, job: Job) -> str:
        """The timeline of attempts, newest first."""
        rows = Attempt.objects.using(guard_settings().using).filter(job_id=job.pk)
        found = list(rows.order_by("-number", "-pk")[: ATTEMPTS_MOST + 1])
        context = {"attempts": found[:ATTEMPTS_MOST], "more": len(found) > ATTEMPTS_MOST}
        return render_to_string("admin/celery_guard/job/attempts.html", context)

    @admin.display(description=gettext_lazy("how it travels"))
    def message_facts(self, job: Job) -> str:
        """How the message travels."""
        message = describe(guard_settings().using, job.message_id)
        return render_to_string("admin/celery_guard/message_facts.html", {"message": message})


def _named(term: str) -> Q:
    # The index over keys begins with the task, so the tasks are named too.
    named = Q(task__in=tasks_in_use(guard_settings().using), key=term)
    if term.isdecimal() and len(term) < 19:
        named |= Q(pk=int(term))
    try:
        return named | Q(public_id=uuid.UUID(term))
    except ValueError:
        return named
