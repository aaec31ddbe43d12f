"""The modes of tasks in the admin: what was set, a way to set one, and to end it."""

from __future__ import annotations

from typing import Any, cast

from celery import current_app
from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http import HttpResponseRedirect as Redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from celery_guard.conf import guard_settings
from celery_guard.enqueue.rollout.models import TaskMode
from celery_guard.enqueue.rollout.turning import end_stages, set_stage
from celery_guard.watch.admin.keyset import ReadOnlyAdmin
from celery_guard.watch.admin.switches import STEER
from celery_guard.watch.modes import stage_faults
from celery_guard.watch.paused import unknown_task

TIMES = [
    (3600, gettext_lazy("1 hour")),
    (86400, gettext_lazy("1 day")),
    (7 * 86400, gettext_lazy("7 days")),
    (30 * 86400, gettext_lazy("30 days")),
    (90 * 86400, gettext_lazy("90 days")),
]


class ModeForm(forms.Form):
    """What is asked of an operator: which task, which mode, how long, why."""

    task = forms.CharField(label=gettext_lazy("Task"), max_length=255)
    stage = forms.CharField(
        label=gettext_lazy("Mode"),
        max_length=16,
        help_text=gettext_lazy("off, compare, canary:10 (per cent of the keys) or on"),
    )
    seconds = forms.TypedChoiceField(label=gettext_lazy("For"), choices=TIMES, coerce=int)
    reason = forms.CharField(label=gettext_lazy("Why"), max_length=500)

    def clean(self) -> dict[str, Any]:
        """The task must be there, be guarded, and fit the mode."""
        given = super().clean() or {}
        name = given.get("task", "")
        for fault in unknown_task(name, current_app):
            self.add_error("task", fault)
        task: Any = current_app.tasks.get(name)
        if task is not None and getattr(task, "guard", None) is None:
            self.add_error("task", _("This task is not guarded."))
        elif task is not None and task.guard.alias != guard_settings().using:
            self.add_error("task", _("Its ledger is on another database: use guard_mode."))
        elif task is not None and "stage" in given:
            for fault in stage_faults(task, given["stage"]):
                self.add_error("stage", fault)
        return given


class TaskModeAdmin(ReadOnlyAdmin):
    """All modes set at run time, ended ones too; set and ended by whoever may steer."""

    list_display = (
        *("id", "task", "shown_stage", "reason", "author"),
        *("created_at", "expires_at", "ended_at", "ended_by"),
    )
    change_list_template = "admin/celery_guard/taskmode/change_list.html"
    change_form_template = "admin/celery_guard/taskmode/change_form.html"

    def shown_stage(self, row: TaskMode) -> str:
        """The mode, with canary's percentage."""
        return str(row.stage)

    shown_stage.short_description = gettext_lazy("mode")  # type: ignore[attr-defined]

    def get_urls(self) -> list[Any]:
        """And the page that sets one, and the address that ends one."""
        wrap = self.admin_site.admin_view
        return [
            path("set/", wrap(self.set_one), name="celery_guard_taskmode_set"),
            path("<int:row_id>/end/", wrap(self.end), name="celery_guard_taskmode_end"),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """With the way to a new one, where this operator may take it."""
        may = {"may_steer": request.user.has_perm(STEER)}
        return super().changelist_view(request, {**(extra_context or {}), **may})

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: TaskMode | None = None,
    ) -> HttpResponse:
        """With the button that ends it, while it is in force."""
        standing = TaskMode.objects.using(guard_settings().using).in_force()
        ongoing = obj is not None and standing.filter(pk=obj.pk).exists()
        context["may_end"] = ongoing and request.user.has_perm(STEER)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def set_one(self, request: HttpRequest) -> HttpResponse:
        """Ask which mode a task is to have; set it by POST.

        :raises PermissionDenied: without the permission to steer.
        """
        if not request.user.has_perm(STEER):
            raise PermissionDenied
        form = ModeForm(request.POST if request.method == "POST" else None)
        if form.is_valid() and (row := self._set(request, form)) is not None:
            return Redirect(reverse("admin:celery_guard_taskmode_change", args=[row.pk]))
        context = {
            **self.admin_site.each_context(request),
            "title": _("Set a mode"),
            "opts": self.opts,
            "form": form,
        }
        return TemplateResponse(request, "admin/celery_guard/taskmode/set.html", context)

    def _set(self, request: HttpRequest, form: ModeForm) -> TaskMode | None:
        author = request.user.get_username()
        try:
            row = set_stage(guard_settings().using, author=author, **form.cleaned_data)
        except ValueError as error:
            form.add_error(None, str(error))
            return None
        _log(request, row, ADDITION, row.reason)
        self.message_user(request, _("It counts everywhere within a second."), messages.SUCCESS)
        return row

    def end(self, request: HttpRequest, row_id: int) -> HttpResponse:
        """End one, by POST only.

        :raises PermissionDenied: without the permission to steer.
        """
        if not request.user.has_perm(STEER):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        using = guard_settings().using
        row = TaskMode.objects.using(using).filter(pk=row_id).first()
        if row is None:
            raise Http404
        standing = TaskMode.objects.using(using).in_force().filter(pk=row_id).exists()
        if standing and end_stages(using, [row.task], by=request.user.get_username()):
            _log(request, row, CHANGE, "ended")
            self.message_user(request, _("Ended. The settings count again."), messages.SUCCESS)
        else:
            self.message_user(request, _("It was over already."), messages.WARNING)
        return Redirect(reverse("admin:celery_guard_taskmode_change", args=[row_id]))


def _log(request: HttpRequest, row: TaskMode, flag: int, what: str) -> None:
    LogEntry.objects.log_actions(
        cast(int, request.user.pk),
        [row],
        flag,
        change_message=f"{row}: {what}",
        single_object=True,
    )
