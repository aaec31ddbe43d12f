"""What can be known without asking a server: the system checks."""

from __future__ import annotations

from collections.abc import Iterator

from django.core import checks

from celery_guard.watch.checks.known import TAG
from celery_guard.watch.doctor.finding import Finding, Level, ok


def look_at_settings(aliases: list[str]) -> Iterator[Finding]:
    """Every message of the guard's system checks, those that ask a database included.

    :param aliases: the databases that may be asked.
    """
    said = [
        message
        for message in checks.run_checks(tags=[TAG], databases=aliases)
        if not message.is_silenced()
    ]
    for message in said:
        serious = message.level >= checks.ERROR
        yield Finding(
            what=f"check {(message.id or '').removeprefix('celery_guard.')}",
            says=str(message.msg),
            level=Level.FAULT if serious else Level.WARNING,
            hint=message.hint or "",
        )
    if not said:
        yield ok("settings", "all system checks pass")
