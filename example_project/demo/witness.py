"""Those who saw it: the invoice table, the mail catcher, the payment provider.

None of them knows of jobs. Only :meth:`Witness.unfinished` looks into the ledger, to tell when
there is nothing more to wait for.
"""

from typing import Self

import psycopg
import redis

from demo import catcher
from demo.stage import LANES, Stage
from demo.tally import Seen
from demo.till import Till

WHO = {
    "invoices": "invoice table",
    "mails": "mail catcher",
    "charges": "payment provider",
}
INVOICES = "SELECT order_id, extract(epoch FROM created)::float8 FROM shop_invoice"
STALE_SEARCH = """
SELECT count(*) FROM shop_product p LEFT JOIN shop_searchrow s ON s.product_id = p.id
WHERE s.ordered IS DISTINCT FROM (SELECT count(*) FROM shop_order o WHERE o.product_id = p.id)
"""
UNFINISHED = """
SELECT count(*) FROM celery_guard_job WHERE state IN ('waiting', 'running', 'reconciling')
"""


class Witness:
    """Asks every witness; a context manager, since it keeps two connections."""

    def __init__(self, on: Stage, till: Till) -> None:
        self._on, self._till = on, till

    def __enter__(self) -> Self:
        self._db = psycopg.connect(self._on.database_url, autocommit=True)
        self._broker = redis.Redis.from_url(self._on.redis_url)
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()
        self._broker.close()

    def seen(self) -> dict[str, Seen]:
        """Per kind of effect, order and time of each."""
        mails = catcher.delivered(self._on.mailbox)
        return {
            "invoices": self._db.execute(INVOICES).fetchall(),
            "mails": [(mail.order_id, mail.received_at) for mail in mails],
            "charges": self._till.charges(),
        }

    def repeats(self) -> dict[str, int]:
        """Second tries that provider and mail store recognised and dropped."""
        mails = catcher.delivered(self._on.mailbox)
        return {
            "mails": sum(mail.repeats for mail in mails),
            "charges": self._till.counts()["repeats"],
        }

    def stale_products(self) -> int:
        """Products of which the search does not know every order."""
        return self._number(STALE_SEARCH)

    def unfinished(self) -> int:
        """Jobs that have not come to an end."""
        return self._number(UNFINISHED)

    def in_broker(self) -> int:
        """Messages that wait in the queues or are in the hands of a worker."""
        waiting = sum(self._broker.llen(lane) for lane in LANES)
        return int(waiting + self._broker.hlen("unacked"))

    def _number(self, question: str) -> int:
        row = self._db.execute(question).fetchone()
        return int(row[0]) if row else 0
