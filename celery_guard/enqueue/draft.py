"""Plain calls as what PostgreSQL needs of them.

What else there is to know of such a call is worked out where it turns out to be needed: when its
key is taken, or on another database.
"""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any

from celery import Celery

from celery_guard.conf import Mode
from celery_guard.enqueue.call import Call
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.pattern import Pattern
from celery_guard.enqueue.request import lane_of, new_job
from celery_guard.enqueue.template import MOST_KEPT, NOWHERE, Form, Template
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
    """One call: what PostgreSQL makes its rows of, ``python`` and ``json`` being its values' texts."""

    common: Common
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    task_id: str
    key: str | None
    tenant: str
    place: int | None
    fingerprint: str
    pattern: Pattern
    python: Sequence[str]
    json: Sequence[str]
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

    @property
    def record(self) -> str:
        """What ``insert_many_1.sql`` reads of it."""
        return self.pattern.record % (
            self.task_id,
            "null" if self.key is None else encode_basestring_ascii(self.key),
            encode_basestring_ascii(self.tenant),
            self.fingerprint,
            "null" if self.place is None else self.place,
            *self.python,
            *self.json,
        )

    def values(self) -> tuple[Any, ...]:
        """What ``insert_due_1.sql`` takes of it."""
        shared = self.common.shared
        texts = self.pattern.texts(self.python, self.json, len(self.args))
        fills = {"id": self.task_id, "args": texts.args, "kwargs": texts.kwargs, "place": "null"}
        return (
            self.task_id,
            shared["task"],
            self.key,
            self.fingerprint,
            shared["lane"],
            self.tenant,
            shared["awaited"],
            shared["dependency"],
            texts.body,
            self.common.form.python % fills,
        )

    def made_handle(self, handle_of: Callable[[str], JobHandle] | None = None) -> JobHandle:
        """A handle of the job, as it is unless the key turns out to be taken.

        :param handle_of: makes one of a task's id, as the task's ``AsyncResult`` does.
        """
        handle: JobHandle = (handle_of or self.task.AsyncResult)(self.task_id)
        handle.ignored = self.common.ignored
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
    form: Form
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
        fingerprint = pattern.fingerprint(values, json)
        return Draft(
            self, args, kwargs, task_id, key, tenant, place, fingerprint, pattern, python, json
        )


def common_of(task: Guarded, app: Celery, template: Template, place: Mapping[str, Any]) -> Common:
    """What plain calls have in common that are made here and now.

    ``template`` has a model, which has no times: they belong to single calls.
    """
    model = template.model
    assert model is not None, "a template without a model is no template of calls"
    form = template.common_form(app, place)
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
        "form": form.database,
    }
    return Common(task, app, template, task.guard.alias, place, shared, form, model.ignore_result)


def common_here(task: Guarded, app: Celery, template: Template) -> Common:
    """:func:`common_of` calls in no group, kept for those to come."""
    where = (os.getpid(), app.thread_oid, tenant_here())
    if (common := template.commons.get(where)) is None:
        if len(template.commons) >= MOST_KEPT:
            template.commons.clear()
        common = template.commons[where] = common_of(task, app, template, NOWHERE)
    return common


def fresh_ids(count: int) -> Iterator[str]:
    """``count`` random UUIDs (version 4) as text, for one question to the system."""
    digits = os.urandom(16 * count).hex()
    for start in range(0, len(digits), 32):
        one = digits[start : start + 32]
        yield f"{one[:8]}-{one[8:12]}-4{one[13:16]}-{_VARIANT[one[16]]}{one[17:20]}-{one[20:]}"
