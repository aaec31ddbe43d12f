"""A comparison is asked for: a job beside the site's own run, with what that run came to.

Such a job has neither key nor coalesce key, so that no request is ever answered by it. What the
site's run returned, and what its effects were answered, travels in the message's header.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

from django.db import Error as DatabaseError
from django.db import connections, transaction
from kombu.utils import json as kombu_json
from kombu.utils.uuid import uuid

from celery_guard.conf import Mode, guard_settings
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.key import bind, fingerprint_of, tenant_of
from celery_guard.enqueue.request import lane_of, retried
from celery_guard.enqueue.template import usual_options
from celery_guard.errors import EnqueueError
from celery_guard.events import emit
from celery_guard.jobs.adding import NewJob, public_id_of
from celery_guard.outbox import hook, store
from celery_guard.outbox.capture import Captured, collecting

HEADER = "guard_reference"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What the site's own run came to: its result and the answers of its effects, as JSON texts."""

    result: str
    effects: Mapping[str, str]

    def encode(self) -> str:
        """As it travels."""
        return json.dumps({"result": self.result, "effects": dict(self.effects)})

    @classmethod
    def decode(cls, text: str) -> Reference:
        """What :meth:`encode` wrote."""
        return cls(**json.loads(text))


def ask_for_comparison(
    task: Guarded,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    value: Any,
    effects: Mapping[str, str],
) -> bool:
    """Enqueue a run beside the site's own, which came to ``value``; False where that can't be.

    The site has its result, whatever happens here: a fault is told and counted, never raised.
    """
    try:
        reference = Reference(result=kombu_json.dumps(value), effects=effects).encode()
        if len(reference) > guard_settings().outbox.payload_limit:
            raise ValueError("the result is larger than outbox.payload_limit")
        _enqueue(task, args, kwargs, reference)
    except (DatabaseError, EnqueueError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"[:200]
        emit("enqueue.not_compared", logging.WARNING, task=task.name, why=why)
        return False
    return True


def _enqueue(task: Guarded, args: Sequence[Any], kwargs: Mapping[str, Any], reference: str) -> None:
    using = task.guard.alias
    captured = _captured(task, args, kwargs, reference)
    store.check_size(captured)
    bound = bind(task, args, kwargs)
    new = NewJob(
        task=task.name,
        lane=lane_of(captured),
        public_id=public_id_of(captured.task_id),
        fingerprint=fingerprint_of(bound),
        tenant=tenant_of(task, task.guard, bound),
        mode=Mode.COMPARE,
    )
    inside = connections[using].in_atomic_block
    # A fault here must not break the caller's transaction.
    with transaction.atomic(using=using) if inside else contextlib.nullcontext():
        retried([using], lambda: store.insert(using, new, captured))
    hook.note(using, new.lane)


def _captured(
    task: Guarded, args: Sequence[Any], kwargs: Mapping[str, Any], reference: str
) -> Captured:
    app = cast(Any, task).app
    with collecting() as kept:
        app.send_task(
            task.name,
            args,
            kwargs,
            task_id=uuid(),
            task_type=task,
            **{**usual_options(task), "ignore_result": True},
            headers={HEADER: reference},
        )
    return kept[0]
