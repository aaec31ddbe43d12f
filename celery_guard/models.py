"""The door to the tables of all rooms, one migration history."""

from celery_guard.enqueue.admission.models import Gate, Reservation
from celery_guard.enqueue.rollout.models import Fallback, Mismatch, Observed, TaskMode
from celery_guard.enqueue.steering.models import Switch
from celery_guard.jobs.models import Attempt, Job
from celery_guard.outbox.models import OutboxMessage
from celery_guard.relay.limits.models import Limit, LimitChange, LimitHold
from celery_guard.relay.models import Duty, LaneLead, WorkerPresence
from celery_guard.run.models import RetryWindow
from celery_guard.settle.models import Effect
from celery_guard.settle.replay.models import Replay, ReplayItem
from celery_guard.watch.models import Counter, LaneSample, LaneSnapshot, Series

__all__ = [
    "Attempt",
    "Counter",
    "Duty",
    "Effect",
    "Fallback",
    "Gate",
    "Job",
    "LaneLead",
    "LaneSample",
    "LaneSnapshot",
    "Limit",
    "LimitChange",
    "LimitHold",
    "Mismatch",
    "Observed",
    "OutboxMessage",
    "Replay",
    "ReplayItem",
    "Reservation",
    "RetryWindow",
    "Series",
    "Switch",
    "TaskMode",
    "WorkerPresence",
]
