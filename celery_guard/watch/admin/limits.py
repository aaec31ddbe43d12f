"""The limits of dependencies in the admin: what was set, a way to set others, and to end it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from celery_guard.conf import guard_settings
from celery_guard.relay.limits.changes import change_of
from celery_guard.relay.limits.changing import end_limits, limit_faults, set_limits
from celery_guard.relay.limits.models import LimitChange
from celery_guard.watch.admin.asked import DAY, HOUR, AskedAdmin
from celery_guard.watch.limits import limits_now, spoken_limits

TIMES = [
    (HOUR // 4, gettext_lazy("15 minutes")),
    (HOUR, gettext_lazy("1 hour")),
    (4 * HOUR, gettext_lazy("4 hours")),
    (DAY, gettext_lazy("1 day")),
    (7 * DAY, gettext_lazy("7 days")),
    (30 * DAY, gettext_lazy("30 days")),
]
_LIMITS = ("dependency", "rate", "burst", "concurrency")


class LimitForm(forms.Form):
    """What is asked of an operator: which dependency, which limits, how long, why."""

    dependency = forms.CharField(label=gettext_lazy("Dependency"), max_length=64)
    rate = forms.CharField(
        label=gettext_lazy("Rate"),
        required=False,
        max_length=200,
        help_text=gettext_lazy("5/s, 100/m, or several: 10/s, 5000/h"),
    )
    burst = forms.CharField(label=gettext_lazy("Burst"), required=False, max_length=100)
    concurrency = forms.IntegerField(label=gettext_lazy("Concurrency"), required=False, min_value=1)
    seconds = forms.TypedChoiceField(label=gettext_lazy("For"), choices=TIMES, coerce=int)
    reason = forms.CharField(label=gettext_lazy("Why"), max_length=500)

    def clean(self) -> dict[str, Any]:
        """The dependency must be there, and the limits must be some."""
        given = super().clean() or {}
        if not self.errors:
            faults = limit_faults(LimitChange(**{name: given[name] for name in _LIMITS}))
            if faults:
                raise forms.ValidationError(faults)
        return given


class LimitChangeAdmin(AskedAdmin):
    """All limits set at run time, ended ones too; set and ended by whoever may change limits."""

    list_display = (
        *("id", "dependency", "limits", "reason", "author"),
        *("created_at", "expires_at", "ended_at", "ended_by"),
    )
    permission = "celery_guard.change_limits"
    asking = LimitForm
    verb = "set"
    begin_label = gettext_lazy("Set limits")
    begun = gettext_lazy("They hold everywhere within a second or so.")
    ended = gettext_lazy("Ended. The settings hold again.")

    def more(self, request: HttpRequest) -> dict[str, Any]:
        """What holds now."""
        return {"now": limits_now()}

    def to_confirm(self, form: forms.Form) -> list[str]:
        """What would hold instead of what."""
        given = form.cleaned_data
        known = guard_settings().dependencies[given["dependency"]]
        row = LimitChange(**{name: given[name] for name in _LIMITS})
        words = {"name": known.name, "new": spoken_limits(known, change_of(row))}
        (now,) = (one for one in limits_now() if one.dependency == known.name)
        return [_("%(name)s: %(new)s") % words, _("Now: %(says)s") % {"says": now.says}]

    def begin(self, using: str, given: dict[str, Any], author: str) -> LimitChange:
        """Set them."""
        return set_limits(using, author=author, **given)

    def end(self, using: str, row: LimitChange, by: str) -> bool:
        """Let the settings hold again."""
        return self.is_ongoing(row) and bool(end_limits(using, [row.dependency], by=by))
