"""What an effect's row calls the effect and its item."""

from __future__ import annotations

import hashlib

from celery_guard.jobs.storable import storable

NAME_LENGTH = 100
ITEM_LENGTH = 155


def name_fault(name: object) -> str | None:
    """What is wrong with ``name`` as an effect's; None where nothing is."""
    if isinstance(name, str) and 0 < len(name) <= NAME_LENGTH and storable(name) == name:
        return None
    return f"the name must be text of 1 to {NAME_LENGTH} characters that a database can store"


def item_of(text: str) -> str:
    """``text`` itself, or its beginning and its hash where it is too long or no database stores it."""
    if len(text) <= ITEM_LENGTH and storable(text) == text:
        return text
    return hashed(text, text)


def hashed(text: str, whole: str) -> str:
    """The beginning of ``text``, for people, and the hash of ``whole``, which tells it from others."""
    exact = hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()
    return f"{storable(text)[: ITEM_LENGTH - 65]}#{exact}"
