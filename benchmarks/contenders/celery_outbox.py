"""django-celery-outbox: a Celery subclass that writes rows, and a relay command."""

from collections.abc import Mapping
from typing import Any

from benchmarks import tables
from benchmarks.contenders.contender import Command, Contender, manage


class CeleryOutbox(Contender):
    """With its defaults."""

    name = "celery_outbox"
    package = "django_celery_outbox"
    django_apps = ("django_celery_outbox",)
    own_tables = ("celery_outbox", "celery_outbox_dead_letter")
    relay_options: tuple[str, ...] = ()

    def django_settings(self) -> Mapping[str, Any]:
        return {"CELERY_OUTBOX_APP": "benchmarks.celery_app.app"}

    def make_celery(self) -> Any:
        from django_celery_outbox.app import OutboxCelery

        return OutboxCelery("bench")

    def enqueue(self, order_id: int, kind: str = "noop") -> None:
        self.work.delay(order_id, kind=kind)

    def fill(self, rows: int) -> None:
        from django.db import transaction

        with transaction.atomic():
            self.enqueue(1)
        tables.multiply("celery_outbox", rows, task_id="gen_random_uuid()::text")

    def pending(self) -> int:
        return int(tables.scalar("SELECT count(*) FROM celery_outbox"))

    def relay_command(self) -> Command:
        return manage("celery_outbox_relay", *self.relay_options)


class CeleryOutboxTuned(CeleryOutbox):
    """With the best of its own settings that we found."""

    name = "celery_outbox_tuned"
    scenarios = frozenset({"relay"})
    relay_options = ("--batch-size", "1000")

    def django_settings(self) -> Mapping[str, Any]:
        return {**super().django_settings(), "MONITORING_METRICS_ENABLED": False}


CONTENDERS = (CeleryOutbox(), CeleryOutboxTuned())
