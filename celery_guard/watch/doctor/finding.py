"""What the doctor has to say."""

from __future__ import annotations

import dataclasses
import enum


class Level(enum.StrEnum):
    """How bad it is: ``fault`` makes the command's exit code 1."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    ``what`` names it (``lane high``), ``says`` is one sentence on its state, ``hint`` the line to
    write or the command to run; empty when all is well.
    """

    what: str
    says: str
    level: Level = Level.OK
    hint: str = ""


def ok(what: str, says: str) -> Finding:
    """All is well."""
    return Finding(what=what, says=says)


def warning(what: str, says: str, hint: str) -> Finding:
    """Unwise, or not to be known."""
    return Finding(what=what, says=says, level=Level.WARNING, hint=hint)


def fault(what: str, says: str, hint: str) -> Finding:
    """Jobs are late or stand still because of it, or could be lost or doubled."""
    return Finding(what=what, says=says, level=Level.FAULT, hint=hint)
