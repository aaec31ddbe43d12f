"""Steering in the admin: what was held or refused, and a way to begin and to end it."""

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
from celery_guard.enqueue.steering.models import Action, Switch
from celery_guard.enqueue.steering.turning import turn_off, turn_on
from celery_guard.watch.admin.keyset import ReadOnlyAdmin
from celery_guard.watch.paused import unknown_lane, unknown_task

STEER = "celery_guard.steer_jobs"
TIMES = [
    (900, gettext_lazy("15 minutes")),
    (3600, gettext_lazy("1 hour")),
    (4 * 3600, gettext_lazy("4 hours")),
    (86400, gettext_lazy("1 day")),
    (7 * 86400, gettext_lazy("7 days")),
]


class SwitchForm(forms.Form):
    """What is asked of an operator: which jobs, what happens to them, how long, why."""

    lane = forms.CharField(label=gettext_lazy("Lane"), required=False, max_length=64)
    task = forms.CharField(label=gettext_lazy("Task"), required=False, max_length=255)
    tenant = forms.CharField(label=gettext_lazy("Tenant"), required=False, max_length=255)
    everything = forms.BooleanField(label=gettext_lazy("Every job there is"), required=False)
    action = forms.ChoiceField(label=gettext_lazy("What happens"), choices=Action.choices)
    seconds = forms.TypedChoiceField(label=gettext_lazy("For"), choices=TIMES, coerce=int)
    reason = forms.CharField(label=gettext_lazy("Why"), max_length=500)

    def clean(self) -> dict[str, Any]:
        """Something must be named, and it must be there."""
        given = super().clean() or {}
        named = any(given.get(name) for name in ("lane", "task", "tenant"))
        if named == bool(given.get("everything")):
            raise forms.ValidationError(
                _("Name a lane, a task or a tenant, or every job and none of them.")
            )
        for fault in unknown_lane(given.get("lane", ""), [guard_settings().using]):
            self.add_error("lane", fault)
        for fault in unknown_task(given.get("task", ""), current_app):
            self.add_error("task", fault)
        return given


class SwitchAdmin(ReadOnlyAdmin):
    """All switches, ended ones too; turned on and ended by whoever may steer."""

    list_display = (
        *("id", "action", "scope", "reason", "author"),
        *("created_at", "expires_at", "ended_at", "ended_by"),
    )
    change_list_template = "admin/celery_guard/switch/change_list.html"
    change_form_template = "admin/celery_guard/switch/change_form.html"

    def get_urls(self) -> list[Any]:
        """And the page that turns one on, and the address that ends one."""
        wrap = self.admin_site.admin_view
        return [
            path("pause/", wrap(self.pause), name="celery_guard_switch_pause"),
            path("<int:switch_id>/end/", wrap(self.end), name="celery_guard_switch_end"),
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
        obj: Switch | None = None,
    ) -> HttpResponse:
        """With the button that ends it, while it is in force."""
        standing = Switch.objects.using(guard_settings().using).in_force()
        ongoing = obj is not None and standing.filter(pk=obj.pk).exists()
        context["may_end"] = ongoing and request.user.has_perm(STEER)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def pause(self, request: HttpRequest) -> HttpResponse:
        """Ask what is to be held or refused; do it by POST.

        :raises PermissionDenied: without the permission to steer.
        """
        if not request.user.has_perm(STEER):
            raise PermissionDenied
        form = SwitchForm(request.POST if request.method == "POST" else None)
        if form.is_valid() and (switch := self._turned_on(request, form)) is not None:
            return Redirect(reverse("admin:celery_guard_switch_change", args=[switch.pk]))
        context = {
            **self.admin_site.each_context(request),
            "title": _("Pause jobs"),
            "opts": self.opts,
            "form": form,
            "lanes": list(guard_settings().lanes),
        }
        return TemplateResponse(request, "admin/celery_guard/switch/pause.html", context)

    def _turned_on(self, request: HttpRequest, form: SwitchForm) -> Switch | None:
        given = {name: form.cleaned_data[name] for name in form.fields if name != "everything"}
        author = request.user.get_username()
        try:
            switch = turn_on(guard_settings().using, author=author, **given)
        except ValueError as error:
            form.add_error(None, str(error))
            return None
        _log(request, switch, ADDITION, switch.reason)
        self.message_user(request, _("In force everywhere within a second."), messages.SUCCESS)
        return switch

    def end(self, request: HttpRequest, switch_id: int) -> HttpResponse:
        """End one, by POST only.

        :raises PermissionDenied: without the permission to steer.
        """
        if not request.user.has_perm(STEER):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        using = guard_settings().using
        switch = Switch.objects.using(using).filter(pk=switch_id).first()
        if switch is None:
            raise Http404
        if turn_off(using, [switch_id], by=request.user.get_username()):
            _log(request, switch, CHANGE, "ended")
            self.message_user(request, _("Ended. What it held runs now."), messages.SUCCESS)
        else:
            self.message_user(request, _("It was over already."), messages.WARNING)
        return Redirect(reverse("admin:celery_guard_switch_change", args=[switch_id]))


def _log(request: HttpRequest, switch: Switch, flag: int, what: str) -> None:
    LogEntry.objects.log_actions(
        cast(int, request.user.pk),
        [switch],
        flag,
        change_message=f"{switch.action} {switch.scope}: {what}",
        single_object=True,
    )
