"""The members of a plain group, written without a call of Celery's for each.

Celery clones, freezes and applies every member. Where nothing of a group or of its members says
more than a task and its arguments, what comes of it is known: messages with the group's id and
their places in it, and a result that waits for all of theirs.
"""

from __future__ import annotations

from typing import Any

from celery.backends.base import DisabledBackend
from celery.canvas import Signature, group
from kombu.utils.uuid import uuid
from vine import barrier

from celery_guard.enqueue.bulk import running_batch
from celery_guard.enqueue.many import Ways
from celery_guard.enqueue.template import untouched


def apply_together(canvas: Any) -> Any:
    """What ``canvas.apply_async()`` does, into the open batch; None, and nothing, if it is not plain."""
    opened = running_batch()
    if opened is None or canvas.options or not _celerys_own():
        return None
    app, group_id = canvas.app, uuid()
    place = {"group_id": group_id, "reply_to": app.thread_oid}
    ways = Ways(opened, together=True, place=place)
    # Celery makes the members while it applies those before, but one ahead: no transaction that
    # is opened between two of them could count on holding the right one.
    members = list(canvas.tasks)
    found = [(ways.of(member), member) for member in members]
    if not members or any(way is None or way.app is not app for way, _ in found):
        return None
    results = [
        way.join(member["args"], member["kwargs"], index)
        for index, (way, member) in enumerate(found)
        if way is not None
    ]
    return app.GroupResult(group_id, results, ready_barrier=_barrier(results))


def _barrier(results: list[Any]) -> Any:
    """What is fulfilled when all results are there."""
    ready = barrier(size=len(results))
    for result in results:
        # Without a backend nobody ever tells of one.
        if not isinstance(result.backend, DisabledBackend):
            result.then(ready, weak=True)
    return ready


def _celerys_own() -> bool:
    names = ("_apply_tasks", "_prepared", "_freeze_gid")
    functions = [Signature.freeze, *(getattr(group, name) for name in names)]
    return all(untouched(function, "celery.canvas") for function in functions)
