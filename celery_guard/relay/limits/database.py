"""The limits in the ledger's database: a locked row for each dependency, and one short transaction."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from django.db import Error as DatabaseFault
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from celery_guard.errors import LimitsAway
from celery_guard.jobs.clock import DatabaseMicros
from celery_guard.jobs.deadlock import again_on_deadlock
from celery_guard.relay.limits import decide
from celery_guard.relay.limits.answers import Ask, Granted, Reading, Refused, Verdict
from celery_guard.relay.limits.models import Limit, LimitHold
from celery_guard.relay.limits.rules import Rules
from celery_guard.relay.limits.side import apart
from celery_guard.relay.limits.state import State

LOCK_WAIT = 2
"""Longest wait for the row, in seconds: whoever has it may be frozen."""
TRIES = 20
"""Where rows can't be locked (SQLite), a state that was overtaken is decided anew."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
T = TypeVar("T")


class DatabaseLimits:
    """The limits of the ledger on ``using``."""

    def __init__(self, using: str) -> None:
        self.using = using

    def take(self, rules: Rules, ask: Ask) -> Granted | Refused:
        """Decide on ``ask``.

        :raises LimitsAway: when the database does not answer.
        """

        def decided(state: State, now: int) -> Granted | Refused:
            place, held = self._look(rules.name, ask, now)
            answer, after = decide.take(state, rules, now, ask, place, held)
            if after != place:
                self._put(rules.name, LimitHold.PLACE, ask.place, after, after + decide.KEEP)
            if isinstance(answer, Granted) and rules.concurrency:
                self._put(rules.name, LimitHold.PERMIT, ask.permit, now, now + ask.lease)
            return answer

        return self._change(rules, decided)

    def finish(
        self, rules: Rules, permit: str, verdict: Verdict, pause: float, instant: datetime | None
    ) -> None:
        """Give ``permit`` back and learn how its call went.

        :param pause: seconds that a throttling dependency asks for, or until ``instant``.
        :raises LimitsAway: when the database does not answer.
        """

        def decided(state: State, now: int) -> None:
            self._give_back(state, rules.name, permit, now)
            length = int(pause * 1_000_000) if instant is None else micros(instant) - now
            decide.finish(state, rules, now, permit, verdict, length, random.randrange(1000))

        self._change(rules, decided)

    def renew(self, rules: Rules, permits: Collection[str], lease: float) -> None:
        """Let ``permits`` that are not over last ``lease`` seconds from now.

        :raises LimitsAway: when the database does not answer.
        """
        length = int(lease * 1_000_000)

        def decided(state: State, now: int) -> None:
            state.lease = max(state.lease, length)
            for permit in sorted(permits):
                # One that is over may be another's by now.
                mine = self._holds(rules.name, LimitHold.PERMIT).filter(holder=permit)
                mine.update(over=now + length)
                if state.probe == permit and state.probe_until > now:
                    state.probe_until = now + length

        self._change(rules, decided)

    def read(self, wanted: Sequence[Rules]) -> list[Reading]:
        """How the dependencies stand.

        :raises LimitsAway: when the database does not answer.
        """
        try:
            found = Limit.objects.using(self.using).annotate(read_at=DatabaseMicros())
            rows = {row.name: row for row in found.filter(name__in=[r.name for r in wanted])}
            return [self._read(rules, rows.get(rules.name)) for rules in wanted]
        except DatabaseFault as error:
            raise LimitsAway(str(error)) from error

    def _read(self, rules: Rules, row: Limit | None) -> Reading:
        if row is None:
            return decide.read(State(), rules, 1, 0)
        now: int = row.read_at  # type: ignore[attr-defined]
        held = self._holds(rules.name, LimitHold.PERMIT).filter(over__gt=now).count()
        return decide.read(State.decode(row.state), rules, now, held)

    def _change(self, rules: Rules, decided: Callable[[State, int], T]) -> T:
        def change() -> T:
            with apart(self.using) as connection:
                return self._locked(connection, rules, decided)

        try:
            for _ in range(TRIES):
                try:
                    return again_on_deadlock(change)
                except _Overtaken:
                    continue
        except DatabaseFault as error:
            raise LimitsAway(str(error).strip()) from error
        raise LimitsAway(f"{rules.name}: others were always faster")

    def _locked(
        self, connection: BaseDatabaseWrapper, rules: Rules, decided: Callable[[State, int], T]
    ) -> T:
        text, version = self._lock(connection, rules.name)
        # After the lock: whoever had it before may have taken its time.
        now = self._row(rules.name).values_list(DatabaseMicros(), flat=True).get()
        state = State.decode(text)
        LimitHold.objects.using(self.using).filter(name=rules.name, over__lte=now).delete()
        if now < state.seen:
            # The clock has stepped back: no permit may last until it gets there again.
            late = self._holds(rules.name, LimitHold.PERMIT).filter(over__gt=now + state.lease)
            late.update(over=now + state.lease)
        state.seen = now
        answer = decided(state, now)
        mine = self._row(rules.name).filter(version=version)
        if not mine.update(state=state.encode(), version=version + 1):
            raise _Overtaken
        return answer

    def _lock(self, connection: BaseDatabaseWrapper, name: str) -> tuple[str, int]:
        for _ in range(2):
            with connection.cursor() as cursor:
                if connection.vendor == "postgresql":
                    cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}s'")
                cursor.execute(_LOCK + _wait(connection), [name])
                row: tuple[str, int] | None = cursor.fetchone()
            if row is not None:
                return row
            rows = Limit.objects.using(self.using)
            rows.bulk_create([Limit(name=name)], ignore_conflicts=True)
        raise OperationalError(f"the row of {name} comes and goes")

    def _look(self, name: str, ask: Ask, now: int) -> tuple[int, int]:
        holds = self._holds(name, LimitHold.PLACE).filter(holder=ask.place)
        place = holds.values_list("at", flat=True).first() or 0
        others = self._holds(name, LimitHold.PERMIT).exclude(holder=ask.permit)
        return place, others.filter(over__gt=now).count()

    def _give_back(self, state: State, name: str, permit: str, now: int) -> None:
        mine = self._holds(name, LimitHold.PERMIT).filter(holder=permit)
        if (taken := mine.values_list("at", flat=True).first()) is not None:
            mine.delete()
            decide.learn_hold(state, now, taken)

    def _put(self, name: str, kind: str, holder: str, at: int, over: int) -> None:
        self._holds(name, kind).filter(holder=holder).delete()
        if at:
            LimitHold.objects.using(self.using).create(
                name=name, kind=kind, holder=holder, at=at, over=over
            )

    def _row(self, name: str):  # type: ignore[no-untyped-def]
        return Limit.objects.using(self.using).filter(pk=name)

    def _holds(self, name: str, kind: str):  # type: ignore[no-untyped-def]
        return LimitHold.objects.using(self.using).filter(name=name, kind=kind)


class _Overtaken(Exception):
    """Somebody else has written the state meanwhile."""


_LOCK = "SELECT state, version FROM celery_guard_limit WHERE name = %s"


def _wait(connection: BaseDatabaseWrapper) -> str:
    if connection.vendor == "sqlite":
        return ""
    # MySQL has no WAIT here; its own lock time-out holds.
    mariadb = getattr(connection, "mysql_is_mariadb", False)
    return f" FOR UPDATE WAIT {LOCK_WAIT}" if mariadb else " FOR UPDATE"


def micros(instant: datetime) -> int:
    """``instant``, which has a zone, in Unix microseconds."""
    return (instant - _EPOCH) // timedelta(microseconds=1)
