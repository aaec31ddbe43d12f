"""What everything has in common that an operator sets at run time: why, who, from when, until when.

It ends by itself. The row stays as history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from django.db import models

from celery_guard.jobs.clock import DatabaseNow

WORDS = {"reason": 500, "author": 150}
"""The longest reason and author, in characters."""


class TermsQuerySet(models.QuerySet[Any]):
    """Named groups of what was set."""

    def in_force(self) -> Self:
        """Neither ended nor past their expiry, by the database's clock."""
        return self.filter(ended_at=None, expires_at__gt=DatabaseNow())

    def end(self, by: str) -> int:
        """End those in force; return how many there were."""
        return self.in_force().update(ended_at=DatabaseNow(), ended_by=by[:150])


TermsManager = models.Manager.from_queryset(TermsQuerySet)


class Terms(models.Model):
    """The columns of it: it ends at ``expires_at``, or before that by ``ended_by`` at ``ended_at``."""

    reason = models.CharField(max_length=500)
    author = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.CharField(max_length=150, blank=True, default="")

    class Meta:
        abstract = True


def missing(words: Mapping[str, str], names: Mapping[str, int]) -> list[str]:
    """What is not said of ``names``."""
    return [f"{name} is needed" for name in names if not words[name]]


def too_long(words: Mapping[str, str], names: Mapping[str, int]) -> list[str]:
    """What is longer than ``names`` allow, in characters."""
    return [
        f"{name} may have {most} characters, not {len(words[name])}"
        for name, most in names.items()
        if len(words[name]) > most
    ]


def time_faults(seconds: float, longest: float) -> list[str]:
    """What is wrong with a length of ``seconds``; ``longest`` is whole days, in seconds."""
    if 0 < seconds <= longest:
        return []
    days = longest / 86400
    return [f"it must last more than 0 and at most {longest:.0f} seconds ({days:.0f} days)"]
