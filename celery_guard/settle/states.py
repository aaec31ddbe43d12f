"""States of an effect, and what is allowed between them."""

from __future__ import annotations

from django.db.models import TextChoices


class EffectState(TextChoices):
    """What is known of one effect.

    ``sent`` means that the call may be under way; an attempt that ends there leaves a question.
    """

    PREPARED = "prepared"
    SENT = "sent"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    MANUAL = "manual"


OPEN = (EffectState.SENT, EffectState.UNKNOWN, EffectState.MANUAL)
"""Sent, and no answer yet."""


class Recovery(TextChoices):
    """What may be done about a call without an answer.

    ``read_only``: call again. ``keyed``: call again with the same key while the provider
    remembers it. ``reconcilable``: ask the provider first. ``manual``: a person decides.
    """

    READ_ONLY = "read_only"
    KEYED = "keyed"
    RECONCILABLE = "reconcilable"
    MANUAL = "manual"
