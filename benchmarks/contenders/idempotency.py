"""Hand-written, minimal, correct idempotent execution: the limit of what ours can be.

Each runs a job that writes one business row; all are Celery tasks with `acks_late`, and all can
also be called in this process (scenario `claims`).
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from benchmarks.contenders.plain import AcksLate

# A claim is taken when the key is new, or when a former owner's lease ran out.
CLAIM = """
INSERT INTO shop_claim (key, state, claimed_at) VALUES (%s, 0, now())
ON CONFLICT (key) DO UPDATE SET claimed_at = now()
WHERE shop_claim.state = 0 AND shop_claim.claimed_at < now() - interval '10 minutes'
RETURNING key
"""
COMPLETE = "UPDATE shop_claim SET state = 1, done_at = now() WHERE key = %s"
# The business transaction's own record: unseen until it commits, so the second of two
# concurrent deliveries waits here, then finds the key taken.
RECORD = """
INSERT INTO shop_claim (key, state, claimed_at, done_at) VALUES (%s, 1, now(), now())
ON CONFLICT (key) DO NOTHING RETURNING key
"""


class Unprotected(AcksLate):
    """No protection: the baseline."""

    name = "biz_only"
    scenarios = frozenset({"worker", "claims"})

    def setup(self) -> None:
        super().setup()
        from django.db import connection, transaction

        from benchmarks.jobs import do_job

        self.cursor, self.atomic, self.do_job = connection.cursor, transaction.atomic, do_job

    def run_job(self, task_id: str, order_id: int, kind: str) -> None:
        if not hasattr(self, "atomic"):
            self.setup()
        self.execute(task_id)

    def execute(self, task_id: str) -> None:
        """Run the job named `task_id` at most once."""
        with self.atomic():
            self.do_job(1, "write")

    def took(self, statement: str, task_id: str) -> bool:
        with self.cursor() as cursor:
            cursor.execute(statement, [task_id])
            return cursor.fetchone() is not None

    def executions(self, count: int) -> Iterable[Callable[[], None]]:
        return [partial(self.execute, str(uuid.uuid4())) for _ in range(count)]

    def duplicate(self) -> Callable[[], None]:
        again = partial(self.execute, str(uuid.uuid4()))
        again()
        return again


class TwoTransactionsOrm(Unprotected):
    """Claim and complete through the ORM, each in the plainest way."""

    name = "idem_orm_2tx"

    def execute(self, task_id: str) -> None:
        from django.db import IntegrityError
        from django.utils import timezone

        from benchmarks.shop.models import Claim

        try:
            with self.atomic():
                Claim.objects.create(key=task_id)
        except IntegrityError:
            return
        with self.atomic():
            self.do_job(1, "write")
            Claim.objects.filter(key=task_id).update(state=Claim.DONE, done_at=timezone.now())


class TwoTransactions(Unprotected):
    """Claim in one autocommitted statement, complete in the business transaction."""

    name = "idem_sql_2tx"

    def execute(self, task_id: str) -> None:
        if not self.took(CLAIM, task_id):
            return
        with self.atomic():
            self.do_job(1, "write")
            with self.cursor() as cursor:
                cursor.execute(COMPLETE, [task_id])


class OneTransaction(Unprotected):
    """One more statement in the business transaction: the physical minimum.

    Right for jobs whose only effects are in this database.
    """

    name = "idem_sql_1tx"

    def execute(self, task_id: str) -> None:
        with self.atomic():
            if self.took(RECORD, task_id):
                self.do_job(1, "write")


class Reuse:
    """Celery closes the database connection around every task unless told this."""

    scenarios = frozenset({"worker"})

    def celery_settings(self) -> Mapping[str, Any]:
        return {"CELERY_DB_REUSE_MAX": 1_000_000}


class UnprotectedReuse(Reuse, Unprotected):
    """The baseline with a kept connection."""

    name = "biz_only_reuse"


class TwoTransactionsReuse(Reuse, TwoTransactions):
    """Two transactions with a kept connection."""

    name = "idem_sql_2tx_reuse"


class OneTransactionReuse(Reuse, OneTransaction):
    """One transaction with a kept connection."""

    name = "idem_sql_1tx_reuse"


CONTENDERS = (
    Unprotected(),
    TwoTransactionsOrm(),
    TwoTransactions(),
    OneTransaction(),
    UnprotectedReuse(),
    TwoTransactionsReuse(),
    OneTransactionReuse(),
)
