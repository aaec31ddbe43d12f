"""Every publishing form of Celery, through the outbox, beside Celery alone."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from celery.utils.nodenames import anon_nodename
from django.db import transaction
from kombu import pools

from celery_guard.enqueue.canvas import CANVAS_TASK
from celery_guard.jobs.models import Job
from celery_guard.outbox.models import OutboxMessage
from tests.enqueue import tasks
from tests.enqueue.forms import FORMS, Form, tasks_of, topic_queue
from tests.enqueue.sending import send_all
from tests.enqueue.unguarded import declare, undeclare
from tests.enqueue.wire import Entry, comparable, take_all, without_time
from tests.kit.processes import environment

pytestmark = [
    # Celery's own calls, with the newest redis-py.
    pytest.mark.filterwarnings("ignore:Call to deprecated"),
    pytest.mark.bar,
    pytest.mark.django_db(transaction=True),
]

PREFIX = os.environ["GUARD_TEST_PREFIX"]
QUEUES = [f"{PREFIX}{name}" for name in ("celery", "high", "low", "topic")]
FORM = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
_direct: dict[str, Any] = {}


@pytest.fixture
def direct(broker: str, form: Form) -> list[Entry]:
    """What a process without the guard sent to this broker for the form."""
    if broker not in _direct:
        argv = [sys.executable, "-m", "tests.enqueue.unguarded"]
        argv += [broker, os.environ["REDIS_URL"], PREFIX]
        told = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment())
        assert told.returncode == 0, told.stderr
        _direct[broker] = json.loads(told.stdout)
    entries = without_time(_direct[broker]["sent"][form.name])
    return comparable(entries, _direct[broker]["own"], parsed=form.frozen)


@pytest.fixture
def guarded(broker: str) -> Iterator[Any]:
    """The guarded app with its tasks, on the same broker with the same queues."""
    app = tasks.app()
    # kombu keeps its pools per URL, closed ones too.
    pools.reset()
    app.amqp.queues.add(topic_queue(PREFIX))
    declare(app, PREFIX)
    take_all(broker, QUEUES)
    yield tasks_of(app, PREFIX)
    app.amqp.queues.pop(f"{PREFIX}topic")
    undeclare(app, PREFIX)


def arrived(broker: str, app: Any, form: Form) -> list[Entry]:
    """What lies at the broker now, comparable to what another process sent."""
    own = {"origin": anon_nodename(), "reply": app.thread_oid}
    return comparable(without_time(take_all(broker, QUEUES)), own, parsed=form.frozen)


def start_canvases(app: Any) -> None:
    """What a worker does with a frozen canvas: its jobs' bodies run, in a transaction."""
    for job in Job.objects.filter(task=CANVAS_TASK):
        message = OutboxMessage.objects.get(pk=job.message_id)
        args, kwargs, _ = json.loads(bytes(message.body))
        with transaction.atomic():
            app.tasks[CANVAS_TASK](*args, **kwargs)
        job.delete()


@FORM
def test_every_form_is_all_of_a_transaction_and_what_celery_would_have_sent(
    form: Form, broker: str, direct: list[Entry], guarded: Any
) -> None:
    """Rolled back: no row, no message. Committed: a direct publish, but for time and guard_job."""
    with transaction.atomic():
        form.ask(guarded)
        assert Job.objects.exists()
        transaction.set_rollback(True)
    assert (Job.objects.count(), OutboxMessage.objects.count()) == (0, 0)
    assert take_all(broker, QUEUES) == []

    with transaction.atomic():
        form.ask(guarded)
    assert take_all(broker, QUEUES) == []
    assert form.frozen == Job.objects.filter(task=CANVAS_TASK).exists()
    start_canvases(guarded.app)
    send_all(guarded.app)
    assert arrived(broker, guarded.app, form) == direct
