"""In an event loop Django allows no database work: the message goes straight out, to be adopted."""

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction

from celery_guard.errors import MissingKey, NotSerializable
from tests.enqueue.rows import counts, keys
from tests.enqueue.tasks import app, keyed, unkeyed

pytestmark = pytest.mark.django_db(transaction=True)


def _sent(redis_client: Any) -> list[dict[str, Any]]:
    queue = app().conf.task_default_queue
    return [json.loads(entry)["headers"] for entry in redis_client.lrange(queue, 0, -1)]


def test_an_async_view_sends_a_message_without_a_job(redis_client: Any) -> None:
    """No row, no header: the worker makes the job when the message comes."""

    async def view() -> Any:
        return keyed.delay("a"), unkeyed.apply_async((1,), countdown=5)

    handles = asyncio.run(view())
    assert counts() == (0, 0)
    sent = _sent(redis_client)
    assert {headers["id"] for headers in sent} == {handle.id for handle in handles}
    assert all("guard_job" not in headers for headers in sent)


@pytest.mark.parametrize(
    ("args", "error"), [((None,), MissingKey), (((1, 2),), NotSerializable), ((), TypeError)]
)
def test_bad_calls_are_told_there_too(args: Any, error: type[Exception], redis_client: Any) -> None:
    """What a worker could only bury is refused where it is asked for."""

    async def view() -> None:
        keyed.delay(*args)

    with pytest.raises(error):
        asyncio.run(view())
    assert _sent(redis_client) == []


def test_database_work_handed_to_a_thread_is_guarded(redis_client: Any) -> None:
    """``sync_to_async`` has transactions, so it has jobs."""

    @sync_to_async
    def work() -> None:
        try:
            with transaction.atomic():
                keyed.delay("a")
        finally:
            # The thread is asyncio's, and would keep its connection.
            connections.close_all()

    async def view() -> None:
        await work()

    asyncio.run(view())
    assert keys() == ["keyed:a"]
    assert _sent(redis_client) == []
