"""What every command answers in one line where a traceback would say less."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import InterfaceError, OperationalError, ProgrammingError, connections

WRONG_CALL = 2
NOT_ASKED = 3


class GuardCommand(BaseCommand):
    """Ends with return code 2 for a database alias that is none, with 3 where one can't be asked.

    ``--traceback`` shows where it happened.
    """

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run as Django does.

        :raises CommandError: for what is said above, beside those of the command.
        """
        if faults := list(_unknown(options.get("using"))):
            raise CommandError("; ".join(faults), returncode=WRONG_CALL)
        try:
            return super().execute(*args, **options)
        except (OperationalError, InterfaceError, ProgrammingError) as error:
            first, *_ = str(error).splitlines() or [type(error).__name__]
            raise CommandError(
                f"the database can't be asked: {first}\n"
                "  -> python manage.py guard_doctor says what is wrong with it",
                returncode=NOT_ASKED,
            ) from error


def _unknown(using: str | list[str] | None) -> Iterator[str]:
    for alias in [using] if isinstance(using, str) else using or []:
        if alias and alias not in connections.settings:
            near = difflib.get_close_matches(alias, connections.settings, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            yield f"--using: DATABASES has no {alias!r}{meant}"
