"""The modes of tasks in the admin: what was set, a way to set one, and to end it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from celery_guard.conf import guard_settings
from celery_guard.enqueue.rollout.models import TaskMode
from celery_guard.enqueue.rollout.turning import end_stages, set_stage
from celery_guard.relay.broker_app import site_app
from celery_guard.watch.admin.asked import DAY, HOUR, AskedAdmin
from celery_guard.watch.modes import stage_faults
from celery_guard.watch.paused import unknown_task

TIMES = [
    (HOUR, gettext_lazy("1 hour")),
    (DAY, gettext_lazy("1 day")),
    (7 * DAY, gettext_lazy("7 days")),
    (30 * DAY, gettext_lazy("30 days")),
    (90 * DAY, gettext_lazy("90 days")),
]


class ModeForm(forms.Form):
    """What is asked of an operator: which task, which mode, how long, why."""

    task = forms.CharField(label=gettext_lazy("Task"), max_length=255)
    stage = forms.CharField(
        label=gettext_lazy("Mode"),
        max_length=16,
        help_text=gettext_lazy("off, observe, compare, canary:10 (per cent of the keys) or on"),
    )
    seconds = forms.TypedChoiceField(label=gettext_lazy("For"), choices=TIMES, coerce=int)
    reason = forms.CharField(label=gettext_lazy("Why"), max_length=500)

    def clean(self) -> dict[str, Any]:
        """The task must be there, be guarded, and fit the mode."""
        given = super().clean() or {}
        name, app = given.get("task", ""), site_app()
        for fault in unknown_task(name, app):
            self.add_error("task", fault)
        task: Any = app.tasks.get(name)
        if task is not None and getattr(task, "guard", None) is None:
            self.add_error("task", _("This task is not guarded."))
        elif task is not None and task.guard.alias != guard_settings().using:
            self.add_error("task", _("Its ledger is on another database: use guard_mode."))
        elif task is not None and "stage" in given:
            for fault in stage_faults(task, given["stage"]):
                self.add_error("stage", fault)
        return given


class TaskModeAdmin(AskedAdmin):
    """All modes set at run time, ended ones too; set and ended by whoever may steer."""

    list_display = (
        *("id", "task", "shown_stage", "reason", "author"),
        *("created_at", "expires_at", "ended_at", "ended_by"),
    )
    asking = ModeForm
    verb = "set"
    begin_label = gettext_lazy("Set a mode")
    begun = gettext_lazy("It counts everywhere within a second.")
    ended = gettext_lazy("Ended. The settings count again.")

    def shown_stage(self, row: TaskMode) -> str:
        """The mode, with canary's percentage."""
        return str(row.stage)

    shown_stage.short_description = gettext_lazy("mode")  # type: ignore[attr-defined]

    def begin(self, using: str, given: dict[str, Any], author: str) -> TaskMode:
        """Set the mode."""
        return set_stage(using, author=author, **given)

    def end(self, using: str, row: TaskMode, by: str) -> bool:
        """Let the settings count again."""
        return self.is_ongoing(row) and bool(end_stages(using, [row.task], by=by))
