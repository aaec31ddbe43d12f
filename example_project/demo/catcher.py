"""``python -m demo.catcher PORT FILE``: an SMTP server that keeps what it gets.

One copy per Message-ID is delivered, as mail stores that suppress duplicates do; every further
copy is counted apart.
"""

import asyncio
import dataclasses
import sqlite3
import sys
import time
from email import message_from_bytes
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

SCHEMA = """
CREATE TABLE IF NOT EXISTS mails (
    message_id TEXT PRIMARY KEY, order_id INTEGER, recipient TEXT NOT NULL,
    attachments INTEGER NOT NULL, received_at REAL NOT NULL, repeats INTEGER NOT NULL DEFAULT 0
)
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """One delivered mail; ``repeats`` counts the further copies that were dropped."""

    message_id: str
    order_id: int
    recipient: str
    attachments: int
    received_at: float
    repeats: int


def delivered(path: Path) -> list[Mail]:
    """Every mail that the catcher behind ``path`` delivered."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        rows = db.execute(
            "SELECT message_id, order_id, recipient, attachments, received_at, repeats FROM mails"
        ).fetchall()
    db.close()
    names = [field.name for field in dataclasses.fields(Mail)]
    return [Mail(**dict(zip(names, row, strict=True))) for row in rows]


class Box:
    """Takes mail in; aiosmtpd calls it."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(SCHEMA)

    async def handle_DATA(  # noqa: N802 (the name that aiosmtpd looks for)
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        """Keep the mail, or count it as a repeat; 550 where it has no Message-ID."""
        content = envelope.content or b""
        mail = message_from_bytes(content if isinstance(content, bytes) else content.encode())
        if not (message_id := mail.get("Message-ID")):
            return "550 a Message-ID is needed"
        pdfs = sum(part.get_content_type() == "application/pdf" for part in mail.walk())
        self._db.execute(
            "INSERT INTO mails VALUES (?, ?, ?, ?, ?, 0)"
            " ON CONFLICT (message_id) DO UPDATE SET repeats = repeats + 1",
            (message_id, mail.get("X-Order"), envelope.rcpt_tos[0], pdfs, time.time()),
        )
        return "250 kept"


async def serve(port: int, path: Path) -> None:
    """Take mail on ``port`` until cancelled."""
    box = Box(path)
    server = await asyncio.get_running_loop().create_server(
        lambda: SMTP(box, hostname="catcher.example"), "127.0.0.1", port
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
