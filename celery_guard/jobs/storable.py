"""Texts of the site's and of others, as every database can store them."""

from __future__ import annotations

import re

LIMIT = 4096
"""Most bytes of an error's message that are kept."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """``text`` without what a database refuses, cut to the limit."""
    clean = _UNSTORABLE.sub("\ufffd", text)
    return clean.encode()[:LIMIT].decode(errors="ignore")


def message_of(error: BaseException) -> str:
    """What ``error`` says, storable; never raises, whatever its ``__str__`` does."""
    try:
        return storable(str(error))
    except Exception as broken:  # noqa: BLE001 - the site's __str__ may do anything
        return f"(its message can't be read: {type(broken).__name__})"
