"""What one pass of the fold has concluded, and how it is written: few statements for many keys.

Most keys that a pass comes to only get another due time, as all that are within their period do. A
statement for each of them would be most of the pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Expression
from django.db.models.functions import Cast
from django.db.models.sql.compiler import SQLCompiler

from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import Reason, State

AT_ONCE = 200
"""Rows in one statement: the database looks through all of its branches for every row."""

T = TypeVar("T")


@dataclasses.dataclass(slots=True)
class Plan:
    """The writes of one pass: rows that are spoken for, and what changes on the others."""

    spoken: dict[int, list[Job]] = dataclasses.field(default_factory=dict)
    changed: dict[int, dict[str, Any]] = dataclasses.field(default_factory=dict)

    def supersede(self, jobs: Iterable[Job], survivor: int) -> None:
        """Let ``survivor`` speak for ``jobs``."""
        self.spoken.setdefault(survivor, []).extend(jobs)

    def change(self, job: Job, changes: Mapping[str, Any]) -> None:
        """Change these columns of ``job``, as far as they are others than it has."""
        if news := {name: v for name, v in changes.items() if getattr(job, name) != v}:
            self.changed[job.pk] = news

    def write(self, using: str) -> None:
        """Write it all, in the open transaction, which has locked the rows."""
        self._write_echoes(using)
        self._write_superseded(using)
        alike: dict[frozenset[str], dict[int, dict[str, Any]]] = {}
        for pk, changes in self.changed.items():
            alike.setdefault(frozenset(changes), {})[pk] = changes
        for names, rows in alike.items():
            for part in _parts(rows):
                columns = {
                    name: _column(name, {pk: row[name] for pk, row in part.items()})
                    for name in sorted(names)
                }
                Job.objects.using(using).filter(pk__in=list(part)).update(**columns)

    def _write_echoes(self, using: str) -> None:
        # Somebody waits for these task ids: they leave the key as echoes, which are answered as
        # the survivor ends.
        for ids, survivor in self._told(awaited=True):
            Job.objects.using(using).filter(pk__in=ids).update(
                reason=Reason.ECHO,
                survivor=survivor,
                coalesce_key=None,
                due_at=DatabaseNow(),
                expires_at=None,
            )

    def _write_superseded(self, using: str) -> None:
        for ids, survivor in self._told(awaited=False):
            Job.objects.using(using).filter(pk__in=ids).update(
                state=State.SUPERSEDED,
                reason=Reason.COALESCED,
                survivor=survivor,
                due_at=None,
                finished_at=DatabaseNow(),
            )

    def _told(self, *, awaited: bool) -> Iterator[tuple[list[int], Any]]:
        told = {
            job.pk: survivor
            for survivor, jobs in self.spoken.items()
            for job in jobs
            if job.awaited == awaited
        }
        for part in _parts(told):
            yield list(part), _column("survivor", part)


def _column(name: str, values: Mapping[int, Any]) -> Any:
    first, *others = set(values.values())
    if not others:
        return first
    field: Any = Job._meta.get_field(name)
    return Cast(_ByRow(values, field), field)


class _ByRow(Expression):
    """A value for each row, by its number. Made of Django's ``When`` it takes ten times as long."""

    def __init__(self, values: Mapping[int, Any], field: Any) -> None:
        super().__init__(output_field=field)
        self._values = values

    def as_sql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper
    ) -> tuple[str, tuple[Any, ...]]:
        """One branch a row."""
        prepared = self.output_field.get_db_prep_save
        given: list[Any] = []
        for pk, value in self._values.items():
            given += [pk, prepared(value, connection)]
        branches = " WHEN %s THEN %s" * len(self._values)
        return f"CASE {connection.ops.quote_name('id')}{branches} END", tuple(given)


def _parts(whole: Mapping[int, T]) -> Iterator[dict[int, T]]:
    items = iter(whole.items())
    while part := dict(islice(items, AT_ONCE)):
        yield part
