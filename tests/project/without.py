"""Takes a guard out of the package, in this process: how the proofs show that they would notice.

``GUARD_TEST_WITHOUT=finish`` does it in processes that tests start. Nothing of this is in the
package.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from django.db import connections


def _two_messages() -> Any:
    # What the function in PostgreSQL refuses, it refuses together with the COMMIT.
    from celery_guard.jobs import running

    return mock.patch.object(running, "commits_at_once", return_value=False)


def _fence() -> Iterator[Any]:
    """Writes of the holder no longer compare fence and owner."""
    from celery_guard.jobs import running
    from celery_guard.jobs.models import Job

    text = running._sql

    def unfenced(name: str) -> str:
        return (
            text(name)
            .replace("AND fence = %s", "AND %s::int IS NOT NULL")
            .replace("AND owner = %s", "AND %s::uuid IS NOT NULL")
            if name == "succeed"
            else text(name)
        )

    yield _two_messages()
    yield mock.patch.object(running, "_sql", unfenced)
    yield mock.patch.object(
        running,
        "_held",
        lambda hold: Job.objects.using(hold.using).filter(pk=hold.job_id, state="running"),
    )


def _claim() -> Iterator[Any]:
    """A claim takes a job whatever its state."""
    from celery_guard.jobs import claiming, on_wire
    from celery_guard.outbox.functions import text_of

    name = "celery_guard_claim_without"
    text = text_of("claim_3").replace("celery_guard_claim_3", name)
    usual = claiming._called

    def unguarded(connection: Any, asked: Any, given: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(text.replace("AND job.state = 'waiting'", ""))
        return usual(connection, on_wire.function(name, len(given)), given)

    yield mock.patch.object(claiming, "_called", unguarded)


def _outbox() -> Iterator[Any]:
    """Jobs are written on a connection of their own, not in the caller's transaction."""
    from celery_guard.outbox import store

    def apart(insert: Callable[[], Any]) -> Any:
        found: list[Any] = []

        def write() -> None:
            try:
                found.append(insert())
            finally:
                connections.close_all()

        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        return found[0]

    insert, due = store.insert, store.insert_due

    def insert_due(connection: Any, values: Any, place: int | None = None) -> Any:
        # Looked up in the thread, which has a connection of its own.
        return apart(lambda: due(connections[connection.alias], values, place))

    yield mock.patch.object(store, "insert", lambda *given: apart(lambda: insert(*given)))
    yield mock.patch.object(store, "insert_due", insert_due)


def _unsend() -> Iterator[Any]:
    """What did not reach the broker is not taken back."""
    from celery_guard.jobs import sending

    yield mock.patch.object(sending, "_take_back", return_value=0)


def _finish() -> Iterator[Any]:
    """A body's transaction commits whether its attempt still holds the job or not."""
    from celery_guard.run import ending
    from celery_guard.run.record import record as usual

    def record(*given: Any, **options: Any) -> bool:
        usual(*given, **options)
        return True

    yield _two_messages()
    yield mock.patch.object(ending, "record", record)


def _intent() -> Iterator[Any]:
    """A call goes out without the effect being marked as sent."""
    from celery_guard.settle import moves

    yield mock.patch.object(moves, "mark_sent", return_value=True)


def _budget() -> Iterator[Any]:
    """Every way back to waiting uses up a failure."""
    from celery_guard.jobs import running

    usual = running.put_back

    def put_back(hold: Any, **options: Any) -> bool:
        return usual(hold, **{**options, "failures": 1})

    yield mock.patch.object(running, "put_back", put_back)


def _lease() -> Iterator[Any]:
    """A rescue looks at no lease."""
    from celery_guard.jobs import rescuing
    from celery_guard.jobs.clock import in_seconds

    yield mock.patch.object(rescuing, "DatabaseNow", return_value=in_seconds(3600))


def _rescue() -> Iterator[Any]:
    """A rescue takes nothing away."""
    from celery_guard.jobs import rescuing

    yield mock.patch.object(rescuing, "_lose", return_value=None)


def _heartbeat() -> Iterator[Any]:
    """Heartbeats extend nothing."""
    from celery_guard.jobs import rescuing

    yield mock.patch.object(rescuing, "beat", return_value=set())


def _owed() -> Iterator[Any]:
    """No sweep looks for ended jobs that nobody was told of."""
    from celery_guard.jobs.owed import Untold
    from celery_guard.relay import telling

    yield mock.patch.object(telling, "untold", return_value=Untold())


def _replay() -> Iterator[Any]:
    """Keys are not looked up, and have no constraint: a call over an ended job is a new one."""
    from celery_guard import task
    from celery_guard.jobs.models import Job

    yield _dropped(Job, "celery_guard_job_key")
    # The insert of a plain call names the constraint, and fails without it.
    yield mock.patch.object(task, "enqueue_alone", return_value=None)


@contextlib.contextmanager
def _dropped(model: Any, name: str) -> Iterator[None]:
    constraint = next(c for c in model._meta.constraints if c.name == name)
    with connections["default"].schema_editor() as editor:
        editor.remove_constraint(model, constraint)
    try:
        yield
    finally:
        model.objects.all()._raw_delete("default")
        with connections["default"].schema_editor() as editor:
            editor.add_constraint(model, constraint)


GUARDS: dict[str, Callable[[], Iterator[Any]]] = {
    "fence": _fence,
    "claim": _claim,
    "outbox": _outbox,
    "unsend": _unsend,
    "finish": _finish,
    "intent": _intent,
    "budget": _budget,
    "lease": _lease,
    "rescue": _rescue,
    "heartbeat": _heartbeat,
    "owed": _owed,
    "replay": _replay,
}


@contextlib.contextmanager
def without(guard: str) -> Iterator[None]:
    """The package without ``guard`` within the block."""
    with contextlib.ExitStack() as stack:
        for patch in GUARDS[guard]():
            stack.enter_context(patch)
        yield


def take_out_what_the_environment_names() -> None:
    """For good: called when a process of the test site starts."""
    if guard := os.environ.get("GUARD_TEST_WITHOUT"):
        _for_good.enter_context(without(guard))


# Held, or the guard would be put back as soon as nobody refers to the block.
_for_good = contextlib.ExitStack()
