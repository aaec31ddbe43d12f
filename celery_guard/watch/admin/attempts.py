"""Attempts and messages in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Length
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy

from celery_guard.jobs.models import Attempt
from celery_guard.outbox.models import OutboxMessage
from celery_guard.watch.admin.described import Described, described
from celery_guard.watch.admin.keyset import ReadOnlyAdmin


def _whole(term: str) -> int:
    # Ids begin at 1: what is no id finds nothing.
    return int(term) if term.isdecimal() and len(term) < 19 else 0


class AttemptAdmin(ReadOnlyAdmin):
    """Executions that ended in something else than plain success."""

    list_display = (
        "id",
        "job_link",
        "number",
        "outcome",
        "reason",
        "worker",
        "started_at",
        "ended_at",
    )
    search_fields = ("job__id",)
    search_help_text = gettext_lazy("The id of a job.")
    fields = (
        "job_link",
        "number",
        "outcome",
        "reason",
        "error",
        "fingerprint",
        "worker",
        "started_at",
        "ended_at",
    )
    readonly_fields = ("job_link",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Attempt], search_term: str
    ) -> tuple[QuerySet[Attempt], bool]:
        """The attempts of one job."""
        term = search_term.strip()
        return (queryset.filter(job_id=_whole(term)) if term else queryset), False

    @admin.display(description=gettext_lazy("job"))
    def job_link(self, attempt: Attempt) -> str:
        """The job, without asking the database for it."""
        where = reverse("admin:celery_guard_job_change", args=[attempt.job_id])
        return format_html('<a href="{}">{}</a>', where, attempt.job_id)


class OutboxMessageAdmin(ReadOnlyAdmin):
    """Stored messages: how they travel, never what they carry."""

    list_display = ("id", "task", "queue", "size", "created_at")
    search_fields = ("id",)
    search_help_text = gettext_lazy("The id of a message.")
    fields = ("created_at", "facts")
    readonly_fields = ("facts",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[OutboxMessage]:
        """Without the bodies."""
        rows: QuerySet[OutboxMessage] = super().get_queryset(request)
        return rows.annotate(body_size=Length("body")).defer("body")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[OutboxMessage], search_term: str
    ) -> tuple[QuerySet[OutboxMessage], bool]:
        """One message."""
        term = search_term.strip()
        return (queryset.filter(pk=_whole(term)) if term else queryset), False

    @admin.display(description=gettext_lazy("task"))
    def task(self, message: OutboxMessage) -> str:
        """The task's name, from the envelope."""
        return dict(_described(message).headers).get("task", "-")

    @admin.display(description=gettext_lazy("queue"))
    def queue(self, message: OutboxMessage) -> str:
        """Where it goes."""
        return dict(_described(message).facts).get("queues") or "-"

    @admin.display(description=gettext_lazy("size in bytes"))
    def size(self, message: OutboxMessage) -> int:
        """The body's size."""
        return _described(message).size

    @admin.display(description=gettext_lazy("how it travels"))
    def facts(self, message: OutboxMessage) -> str:
        """How it travels."""
        context = {"message": _described(message)}
        return render_to_string("admin/celery_guard/message_facts.html", context)


def _described(message: Any) -> Described:
    return described(message.pk, message.envelope, message.body_size or 0)
