"""Over what a commit wakes the relay; both sides come to the same answer from the settings."""

from __future__ import annotations

import dataclasses
from typing import Literal
from urllib.parse import urlsplit

from celery import Celery
from django.db import connections

from celery_guard.conf import guard_settings
from celery_guard.redis import redis_url
from celery_guard.relay.broker_app import load_app

NOTIFY_NAME = "celery_guard_wake"
LONGEST_NOTE = 7000
"""NOTIFY takes just under 8,000 bytes; a longer note is cut to "look at everything"."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """How wakes travel for one database: over ``redis``, by ``notify``, or not at all."""

    kind: Literal["redis", "notify", "poll"]
    url: str = ""
    name: str = ""


def channel_for(using: str, app: Celery | None = None) -> Channel:
    """The wake channel of the ledger on ``using``."""
    app = app or load_app()
    wanted = guard_settings().relay.wake
    url = redis_url(app) if wanted in ("auto", "redis") else ""
    if url:
        return Channel(kind="redis", url=url, name=_name(using, url, app))
    if wanted in ("auto", "notify") and connections[using].vendor == "postgresql":
        return Channel(kind="notify", name=NOTIFY_NAME)
    return Channel(kind="poll")


def _name(using: str, url: str, app: Celery) -> str:
    # Pub/sub knows no databases: without its number, sites that share a server wake each other.
    prefix = app.conf.broker_transport_options.get("global_keyprefix", "")
    database = urlsplit(url).path.strip("/") or "0"
    return f"{prefix}celery_guard.wake.{database}.{using}"


def write_note(lanes: set[str]) -> str:
    """The lanes as one text; empty means all."""
    note = "\n".join(sorted(lanes))
    return note if len(note.encode()) <= LONGEST_NOTE else ""


def read_note(note: str) -> set[str]:
    """The lanes of :func:`write_note`; empty means all."""
    return set(note.split("\n")) - {""}
