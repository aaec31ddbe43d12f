"""Callers of the demo's outside parts, over their real protocols."""

import contextlib
import dataclasses
import json
import smtplib
from email.message import EmailMessage
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from demo.programs import Program
from demo.till import Till


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Payer:
    """Asks the provider for charges."""

    port: int
    till: Till
    program: Program
    argv: list[str]

    def charge(
        self, key: str, *, order: int = 1, cents: int = 500, patience: float = 5.0
    ) -> tuple[int, dict[str, object], dict[str, str]]:
        """Status, body and headers of the answer; status 0 where none came in time."""
        line = HTTPConnection("127.0.0.1", self.port, timeout=patience)
        body = json.dumps({"order": order, "amount_cents": cents})
        with contextlib.closing(line):
            try:
                line.request("POST", "/charges", body, {"Idempotency-Key": key} if key else {})
                answer = line.getresponse()
                return answer.status, json.loads(answer.read()), dict(answer.headers)
            except (OSError, HTTPException):
                return 0, {}, {}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mailer:
    """Sends mail to the catcher."""

    port: int
    box: Path

    def send(self, message_id: str, *, order: int = 1) -> None:
        """Send one mail with a PDF in it."""
        mail = EmailMessage()
        mail["From"], mail["To"] = "shop@shop.example", "customer@mail.example"
        mail["X-Order"] = str(order)
        if message_id:
            mail["Message-ID"] = message_id
        mail.set_content("your invoice")
        mail.add_attachment(b"%PDF-1.4", maintype="application", subtype="pdf")
        with smtplib.SMTP("127.0.0.1", self.port, timeout=5) as server:
            server.send_message(mail)
