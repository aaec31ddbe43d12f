"""``python -m tests.enqueue.unguarded URL PREFIX``: what Celery alone sends, form by form.

Prints one JSON object: the process' own names, and per form the raw entries at the broker.
"""

import json
import sys

from celery import Celery
from celery.utils.nodenames import anon_nodename

from tests.enqueue.forms import FORMS, PLACE, task_bodies, tasks_of, topic_queue
from tests.enqueue.wire import Entry, take_all


def plain_app(url: str, backend: str, prefix: str) -> Celery:
    """An app with the same tasks and the same settings as the test site, unguarded."""
    app = Celery("plain", broker=url, backend=backend, set_as_current=True)
    app.conf.update(
        task_default_queue=f"{prefix}celery",
        timezone="UTC",
        broker_connection_timeout=2,
        broker_connection_retry_on_startup=True,
    )
    for name, body in task_bodies().items():
        app.task(body, name=f"{PLACE}.{name}")
    app.finalize()
    app.amqp.queues.add(topic_queue(prefix))
    return app


def main(url: str, backend: str, prefix: str) -> None:
    """Send every form and print what arrived."""
    app = plain_app(url, backend, prefix)
    declare(app, prefix)
    queues = [f"{prefix}{name}" for name in ("celery", "high", "low", "topic")]
    sent: dict[str, list[Entry]] = {}
    for form in FORMS:
        form.ask(tasks_of(app, prefix))
        sent[form.name] = take_all(url, queues, least=form.messages)
    own = {"origin": anon_nodename(), "reply": app.thread_oid}
    print(json.dumps({"own": own, "sent": sent}))  # noqa: T201


def declare(app: Celery, prefix: str) -> None:
    """The topic exchange with its queue, for the form that only names the exchange."""
    with app.connection_for_write() as connection:
        topic_queue(prefix)(connection.default_channel).declare()


def undeclare(app: Celery, prefix: str) -> None:
    """Take both away again: others use the broker too."""
    with app.connection_for_write() as connection:
        queue = topic_queue(prefix)(connection.default_channel)
        queue.delete()
        queue.exchange.delete()


if __name__ == "__main__":
    main(*sys.argv[1:])
