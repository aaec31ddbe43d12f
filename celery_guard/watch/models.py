"""The measured truth about each lane: written by the snapshot, read by all that shows or decides."""

from __future__ import annotations

from django.db import models


class LaneSnapshot(models.Model):
    """The newest measurement of one lane.

    ``ready`` jobs could start now (``sent`` of them are with the broker; ``held`` ones were due once
    and were put off by an outage or a limit), ``scheduled`` ones
    are not due for the first time, ``retrying`` ones wait to start again or, with no attempt, for a
    provider's answer, ``running`` ones are held by an attempt; no job is counted twice. ``capped``: a count stopped at its bound, so
    the numbers are "at least".

    ``oldest_due_at`` is the ``first_due_at`` of the oldest due job that has never started, NULL
    when there is none; ages are computed at reading, so that they grow when nobody measures.
    ``pending`` jobs could have been sent and were not; ``stuck_since`` is the time since which
    the relay has left them so. ``dead_letters`` is NULL while it is not known.
    ``completions_total`` only ever grows. The rates are moving averages and may be a little
    below zero.

    ``service_rate`` is what one busy slot ends a second, NULL until that is known, and
    ``busy_seconds`` the slots' busy time since a job ended last; ``busy_slots`` is the moving average
    of ``running``. ``desired_workers`` is the scaling
    advice, NULL before the first; see :mod:`celery_guard.watch.scaling` for the other two.
    """

    lane = models.CharField(max_length=64, primary_key=True)
    taken_at = models.DateTimeField()
    ready = models.IntegerField(default=0)
    held = models.IntegerField(default=0, db_default=0)
    scheduled = models.IntegerField(default=0)
    sent = models.IntegerField(default=0)
    running = models.IntegerField(default=0)
    retrying = models.IntegerField(default=0)
    capped = models.BooleanField(default=False)
    oldest_due_at = models.DateTimeField(null=True)
    pending = models.IntegerField(default=0)
    stuck_since = models.DateTimeField(null=True)
    dead_letters = models.IntegerField(null=True)
    arrivals_per_second = models.FloatField(default=0)
    completions_per_second = models.FloatField(default=0)
    completions_total = models.BigIntegerField(default=0)
    slots = models.IntegerField(default=0)
    workers = models.IntegerField(default=0, db_default=0)
    service_rate = models.FloatField(null=True)
    busy_slots = models.FloatField(default=0, db_default=0)
    busy_seconds = models.FloatField(default=0, db_default=0)
    desired_workers = models.IntegerField(null=True)
    desired_uncapped = models.IntegerField(null=True)
    limited_by = models.CharField(max_length=16, blank=True, default="", db_default="")

    class Meta:
        app_label = "celery_guard"
        verbose_name = "lane"
        verbose_name_plural = "lanes"
        # The admin's actions on jobs; kept with the room that offers them.
        permissions = [
            ("replay_job", "Can replay jobs"),
            ("cancel_job", "Can cancel waiting jobs"),
            ("settle_effect", "Can decide about effects without an answer"),
        ]

    def __str__(self) -> str:
        return self.lane


class LaneSample(models.Model):
    """One lane in one minute, for curves and for the scale-in window; kept for a day.

    The worst of the minute for ``age`` and ``needed`` (workers that the load asked for), the newest
    measurement for the rest.
    """

    id = models.BigAutoField(primary_key=True)
    lane = models.CharField(max_length=64)
    minute = models.DateTimeField()
    age = models.FloatField(default=0)
    ready = models.IntegerField(default=0)
    arrivals_per_second = models.FloatField(default=0)
    completions_per_second = models.FloatField(default=0)
    workers = models.IntegerField(default=0)
    needed = models.IntegerField(default=0)
    advised = models.IntegerField(default=0)

    class Meta:
        app_label = "celery_guard"
        constraints = [
            models.UniqueConstraint(fields=["lane", "minute"], name="celery_guard_sample_minute"),
        ]

    def __str__(self) -> str:
        return f"{self.lane} {self.minute:%Y-%m-%d %H:%M}"


class Series(models.Model):
    """A number of one metric under one set of labels, that outlives processes and only grows.

    ``labels`` is the JSON list of the label values. A histogram has a row for each bucket that was
    ever hit (``name:bound``, not cumulative) and one for the sum, in microseconds (``name:sum``).
    """

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=64)
    labels = models.CharField(max_length=400)
    value = models.BigIntegerField(default=0)

    class Meta:
        app_label = "celery_guard"
        verbose_name_plural = "series"
        constraints = [
            models.UniqueConstraint(fields=["name", "labels"], name="celery_guard_series_row"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.labels}: {self.value}"


class Counter(models.Model):
    """A number of a lane that outlives processes.

    ``completions`` only ever grows: processes add what they have counted every few seconds, and
    one that is killed takes at most that with it. The others are what a walk has found, or what was
    measured beside the lanes: there ``lane`` is a queue or a state.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=64)
    lane = models.CharField(max_length=64)
    value = models.BigIntegerField(default=0)

    class Meta:
        app_label = "celery_guard"
        constraints = [
            models.UniqueConstraint(fields=["name", "lane"], name="celery_guard_counter_row"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.lane}: {self.value}"
