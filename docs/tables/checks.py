"""The system checks, as ``celery_guard/watch/checks/known.py`` has them."""

import string

from celery_guard.checks import CHECKS
from docs.tables.markdown import table


def _checks() -> list[str]:
    rows = (
        (f"[`{c.id}`](../operations/runbook.md#{c.id.lower()})", plain(c.title), plain(c.hint))
        for c in CHECKS.values()
    )
    return table(("id", "what it says", "its hint"), rows)


def plain(template: str) -> str:
    """A message with dots wherever a value goes."""
    parts = string.Formatter().parse(template)
    text = "".join(said + ("…" if field is not None else "") for said, field, *_ in parts)
    return text.replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*")


def ids() -> set[str]:
    """The ids without the project's prefix."""
    return set(CHECKS)


TABLES = {"checks": _checks}
