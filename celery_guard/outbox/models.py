"""The outbox's table."""

from __future__ import annotations

from django.db import models


class OutboxMessage(models.Model):
    """A finished, serialised Celery message; immutable.

    ``body`` is sent byte for byte. ``envelope`` is kombu JSON: ``content_type``,
    ``content_encoding``, ``exchange``, ``routing_key``, ``headers``, ``properties`` and the
    names of the queues to ``declare``.
    """

    id = models.BigAutoField(primary_key=True)
    body = models.BinaryField()
    envelope = models.TextField()
    created_at = models.DateTimeField()

    class Meta:
        app_label = "celery_guard"

    def __str__(self) -> str:
        return f"message {self.pk}"
