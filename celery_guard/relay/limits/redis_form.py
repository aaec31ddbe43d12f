"""The limits in Redis: one script a question, atomic and on Redis' own clock."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import random
from collections.abc import Collection, Sequence
from datetime import datetime
from importlib import resources
from typing import Any

from celery import Celery
from django.core import mail
from redis import Redis
from redis.commands.core import Script
from redis.exceptions import NoScriptError

from celery_guard.conf import guard_settings
from celery_guard.errors import LimitsAway
from celery_guard.redis import Errors, bounded_client
from celery_guard.relay.limits import decide
from celery_guard.relay.limits.answers import Ask, Granted, Reading, Refused, Verdict
from celery_guard.relay.limits.database import micros
from celery_guard.relay.limits.kept import Kept, packed
from celery_guard.relay.limits.rules import Rules
from celery_guard.relay.limits.state import State

_MOST = 1000


class RedisLimits:
    """The limits of everybody who shares the Redis at ``url``."""

    def __init__(self, url: str, app: Celery) -> None:
        self._client: Redis = bounded_client(url, guard_settings().relay.timeout, app)
        prefix = app.conf.broker_transport_options.get("global_keyprefix", "")
        self._prefix = f"{prefix}{site_of(app)}.celery_guard.limit."
        self._scripts: dict[str, Script] = {}
        self._kept = Kept(self._client)
        self._beginnings: dict[tuple[str, Rules], bytes] = {}

    def take(self, rules: Rules, ask: Ask) -> Granted | Refused:
        """Decide on ``ask``.

        :raises LimitsAway: when Redis does not answer.
        """
        granted, wait, reason, kept = self._run("take", rules, asked(ask))
        if granted:
            return Granted()
        return Refused(wait=int(wait), reason=reason.decode(), kept=bool(kept))

    def finish(
        self, rules: Rules, permit: str, verdict: Verdict, pause: float, instant: datetime | None
    ) -> None:
        """Give ``permit`` back and learn how its call went.

        :param pause: seconds that a throttling dependency asks for, or until ``instant``.
        :raises LimitsAway: when Redis does not answer.
        """
        at = 0 if instant is None else micros(instant)
        told = (permit, verdict, int(pause * 1_000_000), random.randrange(1000), at)
        # Nobody waits to hear that all is well.
        self._run("finish", rules, told, waits=verdict != Verdict.FINE)

    def settle(self) -> None:
        """Look at what nobody waited for: an end that Redis had no script for is told again.

        :raises LimitsAway: when Redis does not answer.
        """
        try:
            self._kept.settle()
        except Errors as error:
            raise LimitsAway(f"{type(error).__name__}: {error}") from error

    def renew(self, rules: Rules, permits: Collection[str], lease: float) -> None:
        """Let ``permits`` that are not over last ``lease`` seconds from now.

        :raises LimitsAway: when Redis does not answer.
        """
        length = int(lease * 1_000_000)
        for permit in permits:
            self._eval(_script("renew"), rules, [permit, length])

    def read(self, wanted: Sequence[Rules]) -> list[Reading]:
        """How the dependencies stand.

        :raises LimitsAway: when Redis does not answer.
        """
        return [self._read(rules) for rules in wanted]

    def _read(self, rules: Rules) -> Reading:
        now, held, *flat = self._run("read", rules)
        words = [part.decode() for part in flat]
        return decide.read(
            _state(dict(zip(words[::2], words[1::2], strict=True))), rules, int(now), int(held)
        )

    def _run(
        self, name: str, rules: Rules, given: Sequence[str | int] = (), *, waits: bool = True
    ) -> Any:
        def load_and_run() -> Any:
            return self._eval(_script("rules", name), rules, [encoded(rules), *given])

        try:
            with self._kept.in_hand() as kept, contextlib.suppress(NoScriptError):
                if kept is not None:
                    words = packed([str(one).encode() for one in given])
                    command = self._beginning(name, rules, len(given)) + words
                    if waits:
                        return kept.ask(name, command)
                    return kept.tell(name, command, load_and_run)
        except Errors as error:
            raise LimitsAway(f"{type(error).__name__}: {error}") from error
        return load_and_run()

    def _beginning(self, name: str, rules: Rules, more: int) -> bytes:
        if (known := self._beginnings.get((name, rules))) is None:
            if len(self._beginnings) >= _MOST:
                self._beginnings.clear()
            digest = self._registered(_script("rules", name)).sha
            parts = ["EVALSHA", digest, "4", *self._keys(rules), encoded(rules)]
            known = b"*%d\r\n%b" % (len(parts) + more, packed([part.encode() for part in parts]))
            self._beginnings[name, rules] = known
        return known

    def _keys(self, rules: Rules) -> list[str]:
        # Braces: on a cluster all keys of a dependency lie together.
        key = f"{self._prefix}{{{rules.name}}}"
        return [f"{key}.packed", f"{key}.places", f"{key}.permits", f"{key}.taken"]

    def _eval(self, script: str, rules: Rules, given: list[Any]) -> Any:
        try:
            return self._registered(script)(keys=self._keys(rules), args=given)
        except Errors as error:
            raise LimitsAway(f"{type(error).__name__}: {error}") from error

    def _registered(self, script: str) -> Script:
        # Its digest is worked out once, not at every call.
        if (known := self._scripts.get(script)) is None:
            known = self._scripts[script] = self._client.register_script(script)
        return known


def _state(words: dict[str, str]) -> State:
    numbers = {f.name: f.name for f in dataclasses.fields(State) if f.type == "int"}
    count = int(words.get("buckets", 0))
    return State(
        bases=[int(words[f"base{n + 1}"]) for n in range(count) if f"base{n + 1}" in words],
        intervals=[int(words[f"interval{n + 1}"]) for n in range(count)],
        gates=[int(words[f"gate{n + 1}"]) for n in range(count)],
        tats=[int(words[f"tat{n + 1}"]) for n in range(count)],
        probe=words.get("probe", ""),
        **{name: int(words[name]) for name in numbers if name in words},
    )


def asked(ask: Ask) -> tuple[str | int, ...]:
    """``ask`` as take.lua reads it."""
    return (ask.place, ask.permit, ask.cost, ask.lease, ask.within)


@functools.lru_cache(maxsize=256)
def encoded(rules: Rules) -> str:
    """``rules`` as the scripts read them."""
    breaker = rules.breaker
    opens = (0, 0, 0, 0)
    if breaker is not None:
        opens = (breaker.samples, breaker.ratio, breaker.window, breaker.pause)
    buckets = [number for b in rules.buckets for number in (b.interval, b.burst)]
    return " ".join(map(str, (rules.concurrency, rules.errors, *opens, *buckets)))


@functools.cache
def _script(*names: str) -> str:
    folder = resources.files("celery_guard.relay.limits").joinpath("lua")
    return "\n".join(folder.joinpath(f"{name}.lua").read_text("utf-8") for name in names)


def site_of(app: Celery) -> str:
    """What tells this site's keys from those of others in the same Redis."""
    if own := guard_settings().prefix:
        return own
    # Django's test environment keeps an outbox for mail: tests must not use up a live site's rate.
    return f"test.{app.main}" if hasattr(mail, "outbox") else str(app.main)


_clients: dict[tuple[int, str, str], RedisLimits] = {}


def redis_limits(url: str, app: Celery) -> RedisLimits:
    """This process' limits in the Redis at ``url``; a forked child makes its own."""
    mine = (os.getpid(), url, site_of(app))
    if mine not in _clients:
        _clients[mine] = RedisLimits(url, app)
    return _clients[mine]


def in_this_process() -> list[RedisLimits]:
    """Those that this process has asked."""
    mine = os.getpid()
    return [limits for (pid, *_), limits in list(_clients.items()) if pid == mine]
