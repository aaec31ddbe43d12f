"""Runs the statements of several actors in every order, each actor on a connection of its own."""

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from django.db import connections

Step = Callable[[dict[str, Any]], object]
BLOCKED_AFTER = 0.15
"""Seconds after which a step counts as waiting for a lock; the others go on meanwhile."""


class Actor:
    """A thread with a connection, doing one step after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.memory: dict[str, Any] = {}
        self.errors: list[Exception] = []
        self._todo: queue.SimpleQueue[tuple[Step, threading.Event] | None] = queue.SimpleQueue()
        self._last = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def begin(self, steps: Sequence[Step]) -> None:
        """Forget what was, and have these steps before it."""
        self.memory, self.errors, self._steps = {}, [], list(steps)

    def step(self) -> None:
        """Begin the next step, and wait until it is done or waits for a lock."""
        self._last = done = threading.Event()
        self._todo.put((self._steps.pop(0), done))
        done.wait(BLOCKED_AFTER)

    def catch_up(self) -> None:
        """Wait until all its steps are done."""
        assert self._last.wait(20), f"{self.name} hangs"

    def end(self) -> None:
        """Close the connection."""
        self._todo.put(None)
        self._thread.join(20)

    def _run(self) -> None:
        try:
            while (task := self._todo.get()) is not None:
                step, done = task
                try:
                    step(self.memory)
                except Exception as error:  # noqa: BLE001 - the scenario judges
                    self.errors.append(error)
                done.set()
        finally:
            connections.close_all()


class Company:
    """The actors of a scenario; each keeps its connection from one order to the next."""

    def __init__(self) -> None:
        self.actors: dict[str, Actor] = {}

    def play(self, programs: Mapping[str, Sequence[Step]], order: Sequence[str]) -> None:
        """Run one order to its end."""
        for name, steps in programs.items():
            if name not in self.actors:
                self.actors[name] = Actor(name)
            self.actors[name].begin(steps)
        for name in order:
            self.actors[name].step()
        for actor in self.actors.values():
            actor.catch_up()

    def said(self, name: str) -> dict[str, Any]:
        """What an actor remembers."""
        return self.actors[name].memory

    def errors(self) -> list[Exception]:
        """What was raised in the last order."""
        return [error for actor in self.actors.values() for error in actor.errors]

    def end(self) -> None:
        """Everybody goes home."""
        for actor in self.actors.values():
            actor.end()


def orders_of(programs: Mapping[str, Sequence[object]]) -> Iterator[tuple[str, ...]]:
    """Every way to interleave the programs, each program in its own order."""
    turns = [name for name, steps in programs.items() for _ in steps]
    yield from sorted(set(itertools.permutations(turns)))
