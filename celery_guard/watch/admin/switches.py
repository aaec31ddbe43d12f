"""Steering in the admin: what was held, refused or demoted, and a way to begin and to end it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from celery_guard.conf import guard_settings
from celery_guard.enqueue.steering.models import Action, Switch
from celery_guard.enqueue.steering.turning import turn_off, turn_on
from celery_guard.relay.broker_app import site_app
from celery_guard.watch.admin.asked import DAY, HOUR, AskedAdmin
from celery_guard.watch.paused import unknown_lane, unknown_task

TIMES = [
    (HOUR // 4, gettext_lazy("15 minutes")),
    (HOUR, gettext_lazy("1 hour")),
    (4 * HOUR, gettext_lazy("4 hours")),
    (DAY, gettext_lazy("1 day")),
    (7 * DAY, gettext_lazy("7 days")),
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
        for fault in unknown_task(given.get("task", ""), site_app()):
            self.add_error("task", fault)
        return given


class SwitchAdmin(AskedAdmin):
    """All switches, ended ones too; turned on and ended by whoever may steer."""

    list_display = (
        *("id", "action", "scope", "reason", "author"),
        *("created_at", "expires_at", "ended_at", "ended_by"),
    )
    asking = SwitchForm
    verb = "pause"
    begin_label = gettext_lazy("Pause jobs")
    begun = gettext_lazy("In force everywhere within a second.")
    ended = gettext_lazy("Ended. What it held runs now.")

    def more(self, request: HttpRequest) -> dict[str, Any]:
        """The lanes there are."""
        return {"lanes": list(guard_settings().lanes)}

    def begin(self, using: str, given: dict[str, Any], author: str) -> Switch:
        """Turn the switch on."""
        words = {name: value for name, value in given.items() if name != "everything"}
        return turn_on(using, author=author, **words)

    def end(self, using: str, row: Switch, by: str) -> bool:
        """Turn it off."""
        return bool(turn_off(using, [row.pk], by=by))

    def said_of(self, row: Switch) -> str:
        """What it does to which jobs."""
        return f"{row.action} {row.scope}"
