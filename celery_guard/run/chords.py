"""Whether a chord's body is in somebody's hands: Celery's own claim on it, in the result backend.

Since 5.7 the member that completes a chord takes a claim in Redis before it sends the body, and
whoever else comes to the same count sends nothing. When the claim's owner dies in between, the
body is sent only if a member is counted again once the claim is over. So no member may be taken
for told while there is a claim.
"""

from __future__ import annotations

import logging
from typing import Any

from celery.backends.redis import RedisBackend
from redis.exceptions import RedisError

from celery_guard.events import emit

_DONE = b"done"
"""What Celery leaves in the claim's place once the body is sent."""


def is_being_sent(task: Any, request: Any) -> bool:
    """Whether somebody has claimed the body of the chord that ``request`` belongs to.

    True too where the backend does not say: then the member is counted again, which changes
    nothing by itself.
    """
    backend = task.backend
    if not request.chord or not request.group or not isinstance(backend, RedisBackend):
        return False
    names = [backend.get_key_for_group(request.group, part) for part in (".c", ".s")]
    try:
        claim, size = backend.client.mget(names)
    except RedisError as error:
        emit("run.chord_unknown", logging.WARNING, task=task.name, id=request.id, why=str(error))
        return True
    # A chord that has failed leaves its claim, but not its size.
    if claim in (None, _DONE, _DONE.decode()) or size is None:
        return False
    emit("run.chord_claimed", task=task.name, id=request.id, group=request.group)
    return True
