"""The tables of the rollout: stages set at run time, mismatches, fallbacks, what was observed."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from celery_guard.conf.modes import Mode, Stage
from celery_guard.enqueue.steering.terms import Terms, TermsManager


class TaskMode(Terms):
    """The stage of one task, set while the site runs: it wins over the settings until it is over.

    It ends by itself at ``expires_at``, or before that by ``ended_by`` at ``ended_at``; the row
    stays. Of several in force the newest counts.
    """

    id = models.BigAutoField(primary_key=True)
    task = models.CharField(max_length=255)
    mode = models.CharField(max_length=8, choices=[(mode.value, mode.value) for mode in Mode])
    percent = models.FloatField(default=100.0)

    objects = TermsManager()

    class Meta:
        app_label = "celery_guard"
        verbose_name = _("task mode")
        verbose_name_plural = _("task modes")
        default_permissions = ("view",)
        indexes: ClassVar = [models.Index(fields=["expires_at"], name="celery_guard_mode_expiry")]

    def __str__(self) -> str:
        return f"{self.task} {self.stage}"

    @property
    def stage(self) -> Stage:
        """What it says."""
        return Stage(mode=Mode(self.mode), percent=self.percent)


class Mismatch(models.Model):
    """One way in which runs beside the site's own ended differently; counted, the last one kept.

    Or, under ``observe``, in which the guard would have treated a call differently.

    ``difference`` names what differed, and ``example`` says more of it for the last one: places and
    kinds, never the values, which may be anybody's data. ``settled_at`` is when somebody said that it is dealt with: the next one
    reopens it.
    """

    id = models.BigAutoField(primary_key=True)
    task = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=32)
    difference = models.CharField(max_length=255)
    example = models.TextField(blank=True, default="")
    count = models.BigIntegerField(default=0)
    job = models.UUIDField(null=True)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)
    settled_by = models.CharField(max_length=150, blank=True, default="")

    class Meta:
        app_label = "celery_guard"
        verbose_name = _("mismatch")
        verbose_name_plural = _("mismatches")
        default_permissions = ("view",)
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["task", "fingerprint"], name="celery_guard_mismatch_group"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task}: {self.difference}"


class Fallback(models.Model):
    """One use of the fallback: a slot while it lasts, and what is known of it afterwards.

    It holds its slot until ``ended_at``, or until somebody finds that ``until`` is over: then its
    process has died, or its body has lost the job. Whoever lengthens or ends it locks the row. ``outcome`` is
    the job's state at the end, ``unused`` where no body began, ``lost`` where nobody came back.
    """

    UNUSED = "unused"
    LOST = "lost"

    id = models.BigAutoField(primary_key=True)
    task = models.CharField(max_length=255)
    lane = models.CharField(max_length=64)
    job = models.UUIDField(null=True)
    host = models.CharField(max_length=255, blank=True, default="")
    began_at = models.DateTimeField()
    until = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=12, blank=True, default="")

    class Meta:
        app_label = "celery_guard"
        verbose_name = _("fallback")
        verbose_name_plural = _("fallbacks")
        default_permissions = ("view",)
        indexes: ClassVar = [models.Index(fields=["ended_at"], name="celery_guard_fallback_end")]

    def __str__(self) -> str:
        return f"{self.task} on {self.host}"


class Observed(models.Model):
    """One call of a plain task under the mode ``observe``, remembered for a day.

    What the guard would have done with a call is judged by those that came before it: whether they
    have the same key, whether they had begun and ended. Only what it would have ``taken`` counts: a call
    that it refuses makes no job. ``public_id`` is that of the call's task id.
    """

    id = models.BigAutoField(primary_key=True)
    public_id = models.UUIDField(unique=True)
    task = models.CharField(max_length=255)
    lane = models.CharField(max_length=64)
    tenant = models.CharField(max_length=255, blank=True, default="")
    dependency = models.CharField(max_length=64, blank=True, default="")
    key = models.CharField(max_length=255, null=True)
    coalesce_key = models.CharField(max_length=255, null=True)
    fingerprint = models.CharField(max_length=32, blank=True, default="")
    taken = models.BooleanField(default=True)
    asked_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "celery_guard"
        indexes: ClassVar = [
            models.Index(fields=["task", "key"], name="celery_guard_observed_key"),
            models.Index(fields=["task", "coalesce_key"], name="celery_guard_observed_coalesce"),
            models.Index(fields=["lane", "ended_at"], name="celery_guard_observed_lane"),
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.public_id}"
