"""django-jaiminho: pickles a function call into a row."""

from collections.abc import Mapping
from typing import Any

from benchmarks import tables
from benchmarks.contenders.contender import Command, Contender, manage


class KeepOrder(Contender):
    """The row is written in the transaction; the relay command sends it."""

    name = "jaiminho"
    package = "jaiminho"
    django_apps = ("jaiminho",)
    own_tables = ("jaiminho_event",)
    settings: Mapping[str, Any] = {"PUBLISH_STRATEGY": "keep-order", "DELETE_AFTER_SEND": True}

    def django_settings(self) -> Mapping[str, Any]:
        return {"JAIMINHO_CONFIG": self.settings}

    def setup(self) -> None:
        from benchmarks.shop.jaiminho_send import send

        self.send = send

    def enqueue(self, order_id: int, kind: str = "noop") -> None:
        self.send(order_id, kind=kind)

    def fill(self, rows: int) -> None:
        from django.db import transaction

        with transaction.atomic():
            self.enqueue(1)
            # The on-commit strategy would send it right away: leave it unsent.
            transaction.get_connection().run_on_commit.clear()
        tables.multiply("jaiminho_event", rows)

    def fill_done(self, rows: int) -> None:
        self.fill(rows)
        tables.execute("UPDATE jaiminho_event SET sent_at = now()")
        tables.vacuum("jaiminho_event")

    def pending(self) -> int:
        return int(tables.scalar("SELECT count(*) FROM jaiminho_event WHERE sent_at IS NULL"))

    def relay_command(self) -> Command:
        return manage("events_relay", "--run-in-loop")


class OnCommit(KeepOrder):
    """The row is sent by the web process right after COMMIT."""

    name = "jaiminho_on_commit"
    scenarios = frozenset({"enqueue", "latency", "end_to_end"})
    settings = {"PERSIST_ALL_EVENTS": True, "DELETE_AFTER_SEND": True}


CONTENDERS = (KeepOrder(), OnCommit())
