"""Bulk replays in the admin: how they stand, a look at what one would do, its start and its end."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from celery_guard.conf import guard_settings
from celery_guard.settle.replay import starting
from celery_guard.settle.replay.choosing import Preview, Wanted, preview
from celery_guard.settle.replay.models import ACTIVE, Replay
from celery_guard.watch.admin.asked import AskedAdmin
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


class ReplayAdmin(AskedAdmin):
    """All bulk replays; started and ended by whoever may replay."""

    list_display = (
        *("id", "state", "scope", "chosen", "replayed", "skipped"),
        *("author", "reason", "created_at", "finished_at", "ended_by"),
    )
    fields = (
        *("state", "task", "mark", "lane", "tenant", "pace", "reason", "author", "created_at"),
        *("chosen", "replayed", "skipped", "next_at", "finished_at", "ended_by"),
    )
    permission = REPLAY.required
    asking = ReplayForm
    verb = "start"
    begin_label = gettext_lazy("Replay dead letters")
    begun = gettext_lazy("Started. The relays do it, at its pace.")
    end_verb = "cancel"
    end_label = gettext_lazy("Cancel it now")
    ended = gettext_lazy("Cancelled. What was moved stays so.")
    ended_word = "cancelled"

    def initial(self, request: HttpRequest) -> dict[str, Any]:
        """What the link to the page names."""
        return {name: request.GET.get(name, "") for name in _WHICH}

    def more(self, request: HttpRequest) -> dict[str, Any]:
        """What a replay of this would do."""
        return {"found": None if request.method == "POST" else _look(self.initial(request))}

    def begin(self, using: str, given: dict[str, Any], author: str) -> Replay:
        """Start it."""
        wanted = Wanted(**{name: given[name] for name in _WHICH})
        return starting.start(
            using, wanted, pace=given["pace"], reason=given["reason"], author=author
        )

    def end(self, using: str, row: Replay, by: str) -> bool:
        """Cancel it."""
        return bool(starting.cancel(using, row.pk, by=by))

    def is_ongoing(self, row: Replay) -> bool:
        """Whether it is under way."""
        return row.state in ACTIVE

    def said_of(self, row: Replay) -> str:
        """Which dead letters it replays."""
        return f"replay of {row.scope}"


def _look(given: dict[str, str]) -> Preview | None:
    wanted = Wanted(**given)
    return preview(guard_settings().using, wanted, LOOK) if wanted.named() else None
