"""One plain call, written at once: ``task.delay(…)``, nothing else said, while nothing is out of the
ordinary.

It is a draft like those of many, without a batch. Whatever makes a call another than that sends it
the way on which everything is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from celery import Celery
from django.db import connections

from celery_guard.conf import Mode
from celery_guard.enqueue.admission import places
from celery_guard.enqueue.admission.places import Place
from celery_guard.enqueue.bulk import running_batch
from celery_guard.enqueue.call import Enqueued, in_event_loop
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.draft import Draft, common_here, fresh_ids
from celery_guard.enqueue.request import check_database, known_job, retried
from celery_guard.enqueue.rollout.reading import stage_of
from celery_guard.enqueue.steering.reading import switches
from celery_guard.enqueue.template import template_of
from celery_guard.errors import KeyBusy
from celery_guard.jobs.adding import find_known
from celery_guard.jobs.deadlock import TRIES
from celery_guard.outbox import hook, store
from celery_guard.outbox.capture import capturing_everything, collection

if TYPE_CHECKING:
    from celery_guard.enqueue.handle import JobHandle


def enqueue_alone(task: Guarded, args: Any, kwargs: Any) -> JobHandle | None:
    """What ``task.delay`` does with a plain call; None, and nothing, with any other.

    :raises EnqueueError: as ``delay`` does.
    """
    app, bulk = cast(Celery, cast(Any, task).app), running_batch()
    collects = bulk is not None and bulk.takes(task)
    if not collects and not store.reads_records(task.guard.alias):
        return None
    if places.any_held() and (collects or places.on_terms(task.name)):
        return None
    if not is_usual(app) or (template := template_of(task, app)) is None or not is_on(task):
        return None
    (task_id,) = fresh_ids(1)
    draft: Draft | None = common_here(task, app, template).draft(task_id, args, kwargs)
    if draft is None:
        return None
    check_database(draft.using, task.name)
    if bulk is not None and collects:
        bulk.put_draft(draft)
        return draft.made_handle()
    return _written(draft)


def is_usual(app: Celery) -> bool:
    """Whether nothing in this context makes a call anything else than a new job."""
    return (
        collection() is None
        and capturing_everything() is None
        and not in_event_loop()
        and not app.conf["task_always_eager"]
    )


def is_on(task: Guarded) -> bool:
    """Whether the mode and the switches that are in force leave each call of ``task`` alone."""
    return stage_of(task).mode is Mode.ON and not switches(task.guard.alias).ask_each_call


def _written(draft: Draft) -> JobHandle:
    using = draft.using
    what = f"{draft.task.name}: the key {draft.key!r}"
    place = places.place_for(using, draft.task.name, draft.lane, draft.tenant)
    known = retried([using], lambda: _insert_or_get(draft, place), what)
    if place is not None and known is None:
        places.consumed(place)
    hook.note(using, draft.lane)
    handle = draft.made_handle()
    return handle if known is None else handle.answered_by(known)


def _insert_or_get(draft: Draft, place: Place | None) -> Enqueued | None:
    connection, values = connections[draft.using], draft.values()
    kept = None if place is None else place.id
    for _ in range(TRIES):
        if (job_id := store.insert_due(connection, values, kept)) is not None:
            if job_id < 0:
                places.tell_over(draft.using, 1)
            return None
        item = draft.item()
        # Nothing there either: the holder was purged between the two statements; insert again.
        if (known := find_known(item.using, item.new)) is not None:
            return known_job(item.task, item.new, item.captured, item.call, known, item.using)
    raise KeyBusy(f"{draft.task.name}: the key {draft.key!r} comes and goes")
