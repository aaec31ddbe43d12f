"""Bulk replays in the admin: how they stand, a look at what one would do, its start and its end."""

from __future__ import annotations

from typing import Any, cast

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
from celery_guard.settle.replay import starting
from celery_guard.settle.replay.choosing import Preview, Wanted, preview
from celery_guard.settle.replay.models import ACTIVE, Replay
from celery_guard.watch.admin.keyset import ReadOnlyAdmin
from celery_guard.watch.admin.moves import REPLAY
from celery_guard.watch.paused import unknown_lane

LOOK = 2.0
"""Seconds that a page may look for dead letters."""
_WHICH = ("task", "mark", "lane", "tenant")


class ReplayForm(forms.Form):
    """What is asked of an operator: which dead letters, how fast, why."""

    task = forms.CharField(label=gettext_lazy("Task"), required=False, max_length=255)
    mark = forms.CharField(label=gettext_lazy("Group"), required=False, max_length=32)
    lane = forms.CharField(label=gettext_lazy("Lane"), required=False, max_length=64)
    tenant = forms.CharField(label=gettext_lazy("Tenant"), required=False, max_length=255)
    pace = forms.CharField(label=gettext_lazy("Pace"), max_length=20, initial=starting.PACE)
    reason = forms.CharField(label=gettext_lazy("Why"), max_length=500)

    def clean_lane(self) -> str:
        """A lane that is none has no dead letters."""
        lane: str = self.cleaned_data["lane"]
        if faults := unknown_lane(lane, [guard_settings().using]):
            raise forms.ValidationError(faults)
        return lane


class ReplayAdmin(ReadOnlyAdmin):
    """All bulk replays; started and ended by whoever may replay."""

    list_display = (
        *("id", "state", "scope", "chosen", "replayed", "skipped"),
        *("author", "reason", "created_at", "finished_at", "ended_by"),
    )
    fields = (
        *("state", "task", "mark", "lane", "tenant", "pace", "reason", "author", "created_at"),
        *("chosen", "replayed", "skipped", "next_at", "finished_at", "ended_by"),
    )
    change_list_template = "admin/celery_guard/replay/change_list.html"
    change_form_template = "admin/celery_guard/replay/change_form.html"

    def get_urls(self) -> list[Any]:
        """And the page that starts one, and the address that ends one."""
        wrap = self.admin_site.admin_view
        return [
            path("start/", wrap(self.start), name="celery_guard_replay_start"),
            path("<int:replay_id>/cancel/", wrap(self.cancel), name="celery_guard_replay_cancel"),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """With the way to a new one, where this operator may take it."""
        may = {"may_replay": request.user.has_perm(REPLAY.required)}
        return super().changelist_view(request, {**(extra_context or {}), **may})

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Replay | None = None,
    ) -> HttpResponse:
        """With the button that ends it, while it is under way."""
        active = obj is not None and obj.state in ACTIVE
        context["may_cancel"] = active and request.user.has_perm(REPLAY.required)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def start(self, request: HttpRequest) -> HttpResponse:
        """Show what a replay of this would do; start it by POST.

        :raises PermissionDenied: without the permission to replay.
        """
        if not request.user.has_perm(REPLAY.required):
            raise PermissionDenied
        posted = request.method == "POST"
        given = {name: request.GET.get(name, "") for name in _WHICH}
        form = ReplayForm(request.POST) if posted else ReplayForm(initial=given)
        if posted and form.is_valid() and (replay := self._started(request, form)) is not None:
            return Redirect(reverse("admin:celery_guard_replay_change", args=[replay.pk]))
        context = {
            **self.admin_site.each_context(request),
            "title": _("Replay dead letters"),
            "opts": self.opts,
            "form": form,
            "found": None if posted else _look(given),
        }
        return TemplateResponse(request, "admin/celery_guard/replay/start.html", context)

    def _started(self, request: HttpRequest, form: ReplayForm) -> Replay | None:
        given = form.cleaned_data
        wanted = Wanted(**{name: given[name] for name in _WHICH})
        try:
            replay = starting.start(
                guard_settings().using,
                wanted,
                pace=given["pace"],
                reason=given["reason"],
                author=request.user.get_username(),
            )
        except ValueError as error:
            form.add_error(None, str(error))
            return None
        _log(request, replay, ADDITION, replay.reason)
        self.message_user(request, _("Started. The relays do it, at its pace."), messages.SUCCESS)
        return replay

    def cancel(self, request: HttpRequest, replay_id: int) -> HttpResponse:
        """End one, by POST only.

        :raises PermissionDenied: without the permission to replay.
        """
        if not request.user.has_perm(REPLAY.required):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        using = guard_settings().using
        replay = Replay.objects.using(using).filter(pk=replay_id).first()
        if replay is None:
            raise Http404
        if starting.cancel(using, replay_id, by=request.user.get_username()):
            _log(request, replay, CHANGE, "cancelled")
            self.message_user(request, _("Cancelled. What was moved stays so."), messages.SUCCESS)
        else:
            self.message_user(request, _("It was over already."), messages.WARNING)
        return Redirect(reverse("admin:celery_guard_replay_change", args=[replay_id]))


def _look(given: dict[str, str]) -> Preview | None:
    wanted = Wanted(**given)
    return preview(guard_settings().using, wanted, LOOK) if wanted.named() else None


def _log(request: HttpRequest, replay: Replay, flag: int, what: str) -> None:
    LogEntry.objects.log_actions(
        cast(int, request.user.pk),
        [replay],
        flag,
        change_message=f"replay of {replay.scope}: {what}",
        single_object=True,
    )
