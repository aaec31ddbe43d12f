"""Which mode counts for one call."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from celery_guard.conf import Mode
from celery_guard.enqueue.call import running_call
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.request import identity_of
from celery_guard.enqueue.rollout.reading import stage_of
from celery_guard.errors import EnqueueError

_PARTS = 1_000_000


def choose(
    task: Guarded, args: Sequence[Any], kwargs: Mapping[str, Any], *, blind: bool = False
) -> Mode:
    """The mode of this call; under ``canary``, ``OFF`` for a key that is not selected.

    :param blind: where nothing can be read, as in an event loop.
    """
    stage = stage_of(task, blind=blind)
    if stage.mode is not Mode.CANARY:
        return stage.mode
    try:
        identity = identity_of(task, args, kwargs)
    except (EnqueueError, TypeError):
        # The guard refuses the call, and says why.
        return Mode.CANARY
    return Mode.CANARY if is_selected(task.name, identity, stage.percent) else Mode.OFF


def is_selected(task: str, identity: Mapping[str, Any], percent: float) -> bool:
    """Whether ``canary`` selects what ``identity`` names: the same answer for ever.

    A key that 10 % select is among those that 50 % select. Calls without a key or coalesce key
    go by their arguments.
    """
    name = identity["key"] or identity["coalesce_key"] or identity["fingerprint"]
    drawn = int.from_bytes(hashlib.sha256(f"{task}\n{name}".encode()).digest()[:8]) % _PARTS
    return drawn < percent / 100 * _PARTS


# The message that Celery builds just now by its id, and what was decided of it: a stage that
# changes between the building and the sending must not make the two disagree.
_decided: ContextVar[tuple[str, Mode] | None] = ContextVar("guard_decided", default=None)


def decide(
    task: Guarded,
    task_id: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    blind: bool = False,
) -> Mode:
    """The mode of the message ``task_id`` that is on its way: decided once."""
    if (call := running_call()) is not None:
        return call.mode
    decided = _decided.get()
    if decided is None or decided[0] != task_id:
        decided = (task_id, choose(task, args, kwargs, blind=blind))
        _decided.set(decided)
    return decided[1]


def gone() -> None:
    """The message is sent: a later one of the same id, such as a retry, is decided anew."""
    _decided.set(None)
