"""The door to the admin pages."""

from __future__ import annotations

from django.contrib import admin

from celery_guard.models import (
    Attempt,
    Effect,
    Fallback,
    Job,
    LaneSnapshot,
    LimitChange,
    Mismatch,
    OutboxMessage,
    Replay,
    Switch,
    TaskMode,
)
from celery_guard.watch.admin.attempts import AttemptAdmin, OutboxMessageAdmin
from celery_guard.watch.admin.effects import EffectAdmin
from celery_guard.watch.admin.fallbacks import FallbackAdmin
from celery_guard.watch.admin.jobs import JobAdmin
from celery_guard.watch.admin.lanes import LaneAdmin
from celery_guard.watch.admin.limits import LimitChangeAdmin
from celery_guard.watch.admin.mismatches import MismatchAdmin
from celery_guard.watch.admin.modes import TaskModeAdmin
from celery_guard.watch.admin.replays import ReplayAdmin
from celery_guard.watch.admin.switches import SwitchAdmin

admin.site.register(Job, JobAdmin)
admin.site.register(Attempt, AttemptAdmin)
admin.site.register(OutboxMessage, OutboxMessageAdmin)
admin.site.register(LaneSnapshot, LaneAdmin)
admin.site.register(Effect, EffectAdmin)
admin.site.register(Replay, ReplayAdmin)
admin.site.register(Switch, SwitchAdmin)
admin.site.register(Mismatch, MismatchAdmin)
admin.site.register(TaskMode, TaskModeAdmin)
admin.site.register(Fallback, FallbackAdmin)
admin.site.register(LimitChange, LimitChangeAdmin)
