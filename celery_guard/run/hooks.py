"""The ``on_commit`` hooks of a transaction whose commit was not seen.

A soft time limit may come, or the connection break, between the commit and Django's own note of it.
Django drops the hooks then, and with them whatever they were to send; here they are kept until it
is known what became of the commit.
"""

from __future__ import annotations

from typing import Any

from django.db import connections


class Hooks:
    """Those of the open transaction on ``using``."""

    __slots__ = ("_count", "_left", "_using")

    def __init__(self, using: str) -> None:
        connection = connections[using]
        # Within somebody else's transaction they are its own.
        own = len(connection.atomic_blocks) == 1
        # Django's own list: it takes out what it is about to run, and begins a new one when it drops them.
        self._left: list[Any] = connection.run_on_commit if own else []
        self._count = len(self._left)
        self._using = using

    def run_if_none_was(self) -> None:
        """Run them, unless Django has begun to; only when the transaction is known to be committed."""
        if self._left and len(self._left) == self._count:
            connection = connections[self._using]
            connection.run_on_commit = self._left
            connection.run_and_clear_commit_hooks()
