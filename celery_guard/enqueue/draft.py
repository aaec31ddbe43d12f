"""Calls that wait for the end of their batch.

Most need no more than the record that PostgreSQL reads. What else there is to know of such a call
is worked out where it turns out to be needed: when its key is taken, or on another database.
"""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any

from celery import Celery

from celery_guard.conf import Mode
from celery_guard.enqueue.call import Call
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.pattern import Pattern
from celery_guard.enqueue.request import lane_of, new_job
from celery_guard.enqueue.template import Template
from celery_guard.enqueue.tenants import tenant_here
from celery_guard.enqueue.texts import plain_texts
from celery_guard.jobs.adding import NewJob
from celery_guard.jobs.states import Reason
from celery_guard.outbox.capture import Captured

if TYPE_CHECKING:
    from celery_guard.enqueue.handle import JobHandle

_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One call with its message, and the row that it asks for."""

    task: Guarded
    captured: Captured
    call: Call
    new: NewJob

    @property
    def using(self) -> str:
        """The database of the job."""
        return self.task.guard.alias

    @property
    def lane(self) -> str:
        """The lane of the job."""
        return self.new.lane

    @property
    def key(self) -> str | None:
        """The key of the job."""
        return self.new.key

    def item(self) -> Item:
        """Itself."""
        return self


# Not frozen: there is one for every job, and a frozen one takes three times as long to make.
@dataclasses.dataclass(slots=True, eq=False)
class Draft:
    """One call as the record that PostgreSQL makes its rows of."""

    common: Common
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    task_id: str
    key: str | None
    tenant: str
    place: int | None
    record: str
    handle: weakref.ref[JobHandle] | None = None

    @property
    def task(self) -> Guarded:
        """The task that is called."""
        return self.common.task

    @property
    def using(self) -> str:
        """The database of the job."""
        return self.common.using

    @property
    def lane(self) -> str:
        """The lane of the job."""
        return str(self.common.shared["lane"])

    def made_handle(self) -> JobHandle:
        """A handle of the job, as it is unless the key turns out to be taken."""
        common = self.common
        handle: JobHandle = common.task.AsyncResult(self.task_id)
        handle.ignored = common.ignored
        # Weakly, as a call does: what its caller drops must go at once.
        self.handle = weakref.ref(handle)
        return handle

    def item(self) -> Item:
        """The same call with all that there is to know of it."""
        common = self.common
        place = (
            dict(common.place)
            if self.place is None
            else {**common.place, "group_index": self.place}
        )
        captured = common.template.fill(common.app, self.args, self.kwargs, self.task_id, place)
        call = Call(fixed_id=bool(common.place), handle=self.handle)
        new = new_job(common.task, captured, call)
        return Item(common.task, captured, call, dataclasses.replace(new, tenant=self.tenant))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Common:
    """What all drafts of one task have in common that one call makes.

    ``place`` are the options that a group gives all its members, and ``shared`` the fields of the
    record in which no job differs, ``tenant`` among them unless its arguments tell a job's.
    """

    task: Guarded
    app: Celery
    template: Template
    using: str
    place: Mapping[str, Any]
    shared: Mapping[str, Any]
    ignored: bool

    def draft(self, task_id: str, args: Any, kwargs: Any, place: int | None = None) -> Draft | None:
        """The draft of a call; None for one that has to be looked at by itself."""
        if type(args) is not tuple:
            return None
        pattern: Pattern | None = self.template.pattern(args, kwargs)
        values = (*args, *kwargs.values()) if kwargs else args
        if pattern is None or (texts := plain_texts(values)) is None:
            return None
        python, json = texts
        key, tenant = None, self.shared["tenant"]
        if pattern.key is not None and (key := pattern.key.of(values)) is None:
            return None
        if pattern.tenant is not None and (tenant := pattern.tenant.of(values)) is None:
            return None
        record = pattern.record % (
            task_id,
            "null" if key is None else encode_basestring_ascii(key),
            encode_basestring_ascii(tenant),
            pattern.fingerprint(values, json),
            "null" if place is None else place,
            *python,
            *json,
        )
        return Draft(self, args, kwargs, task_id, key, tenant, place, record)


def common_of(task: Guarded, app: Celery, template: Template, place: Mapping[str, Any]) -> Common:
    """What plain calls have in common that are made here and now.

    ``template`` has a model, which has no times: they belong to single calls.
    """
    model = template.model
    assert model is not None, "a template without a model is no template of calls"
    shared = {
        "task": task.name,
        "lane": lane_of(model),
        "tenant": tenant_here(),
        "reason": Reason.NEW.value,
        "plain": False,
        "awaited": model.awaited or bool(place),
        "delay": 0.0,
        "dependency": task.guard.dependency,
        "mode": Mode.ON.value,
        "form": template.common_form(app, place).database,
    }
    return Common(task, app, template, task.guard.alias, place, shared, model.ignore_result)


def fresh_ids(count: int) -> Iterator[str]:
    """``count`` random UUIDs (version 4) as text, for one question to the system."""
    digits = os.urandom(16 * count).hex()
    for start in range(0, len(digits), 32):
        one = digits[start : start + 32]
        yield f"{one[:8]}-{one[8:12]}-4{one[13:16]}-{_VARIANT[one[16]]}{one[17:20]}-{one[20:]}"
