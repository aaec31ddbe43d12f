"""The provider's memory: charges by idempotency key, and every request that came."""

import dataclasses
import hashlib
import json
import sqlite3
import threading
import time
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS charges (
    key TEXT PRIMARY KEY, digest TEXT NOT NULL, reference TEXT NOT NULL UNIQUE,
    order_id INTEGER NOT NULL, amount_cents INTEGER NOT NULL, applied_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, kind TEXT NOT NULL, status INTEGER NOT NULL,
    repeat INTEGER NOT NULL
);
"""


class OtherBodyError(Exception):
    """The key was used for another charge."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One applied charge."""

    key: str
    reference: str
    order_id: int
    amount_cents: int
    applied_at: float


class Ledger:
    """Charges and requests in one SQLite file; safe to use from many threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.executescript(SCHEMA)

    def apply(self, key: str, *, order_id: int, amount_cents: int) -> tuple[Charge, bool]:
        """The charge under ``key``, applied now or before, and whether it was now.

        :raises OtherBodyError: where ``key`` stands for another order or amount.
        """
        digest = hashlib.sha256(json.dumps([order_id, amount_cents]).encode()).hexdigest()
        row = (key, digest, f"ch_{digest[:6]}{time.time_ns():x}", order_id, amount_cents)
        with self._lock:
            applied = self._db.execute(
                "INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
                (*row, time.time()),
            ).rowcount
            stored = self._db.execute(
                "SELECT key, reference, order_id, amount_cents, applied_at, digest"
                " FROM charges WHERE key = ?",
                (key,),
            ).fetchone()
        if stored[5] != digest:
            raise OtherBodyError
        return _charge(stored[:5]), bool(applied)

    def note(self, key: str, kind: str, status: int, *, repeat: bool) -> None:
        """Remember one request and what was answered; status 0 is silence."""
        with self._lock:
            self._db.execute(
                "INSERT INTO requests (key, kind, status, repeat) VALUES (?, ?, ?, ?)",
                (key, kind, status, repeat),
            )

    def charges(self) -> list[Charge]:
        """Every applied charge, oldest first."""
        with self._lock:
            rows = self._db.execute(
                "SELECT key, reference, order_id, amount_cents, applied_at"
                " FROM charges ORDER BY applied_at"
            ).fetchall()
        return [_charge(row) for row in rows]

    def counts(self) -> dict[str, int]:
        """Charges applied, requests seen, repeats answered from memory, and requests per fault."""
        with self._lock:
            applied = self._db.execute("SELECT count(*) FROM charges").fetchone()[0]
            seen, repeats = self._db.execute(
                "SELECT count(*), coalesce(sum(repeat), 0) FROM requests"
            ).fetchone()
            kinds = self._db.execute("SELECT kind, count(*) FROM requests GROUP BY kind").fetchall()
        return {"applied": applied, "requests": seen, "repeats": repeats, **dict(kinds)}


def _charge(row: tuple[str, str, int, int, float]) -> Charge:
    key, reference, order_id, amount_cents, applied_at = row
    return Charge(
        key=key,
        reference=reference,
        order_id=order_id,
        amount_cents=amount_cents,
        applied_at=applied_at,
    )
