"""A message without a job becomes a job: insert-or-get by key, then the ordinary claim.

Such messages come from web processes of the release before the task was guarded, from another
service's ``send_task``, and from async views. Redelivery finds the same row, by key or by task id.
"""

from __future__ import annotations

import warnings
from typing import Any, cast

from celery.exceptions import AlwaysEagerIgnored

from celery_guard.conf import Mode
from celery_guard.enqueue.call import Call
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.request import enqueue
from celery_guard.events import emit
from celery_guard.outbox.capture import collecting


def adopt(task: Guarded, using: str, mode: Mode = Mode.ON) -> int:
    """The id of the job that ``task``'s current request belongs to.

    :param mode: is stamped on the job, if it is a new one.

    :raises EnqueueError: when the message can't be a job (no key, other arguments, …).
    """
    request = task.request
    # The capture must see the message as it would be sent again, for a later retry.
    signature = task.signature_from_request(request, request.args, request.kwargs)
    options = {n: v for n, v in signature.options.items() if n != "is_eager"}
    with collecting() as kept, warnings.catch_warnings():
        # Not by way of the task: an eager app would run it again instead of building a message.
        warnings.simplefilter("ignore", AlwaysEagerIgnored)
        cast(Any, task).app.send_task(
            task.name, signature.args, signature.kwargs, task_type=task, **options
        )
    enqueued = enqueue(task, kept[0], Call(fixed_id=True, mode=mode))
    emit("enqueue.adopted", task=task.name, job=str(enqueued.public_id), created=enqueued.created)
    return enqueued.job_id
