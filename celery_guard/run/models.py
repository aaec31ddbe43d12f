"""What began and what was tried again lately, by the resource that it would wear out."""

from __future__ import annotations

from django.db import models


class RetryWindow(models.Model):
    """A few seconds of one resource: the attempts that began in them, and those put back to retry.

    ``bucket`` numbers stretches of the database's clock; a later one takes the ``slot`` over, so the
    table keeps its size by itself.
    """

    id = models.BigAutoField(primary_key=True)
    resource = models.CharField(max_length=270)
    slot = models.SmallIntegerField()
    bucket = models.BigIntegerField()
    starts = models.BigIntegerField(default=0)
    retries = models.BigIntegerField(default=0)

    class Meta:
        app_label = "celery_guard"
        constraints = [
            models.UniqueConstraint(
                fields=["resource", "slot"], name="celery_guard_retrywindow_row"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.resource}: {self.starts} starts, {self.retries} retries"
