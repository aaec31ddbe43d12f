"""Interleaved rounds: contenders take turns, so that a drifting machine changes all of them."""

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from benchmarks import scenarios, spread
from benchmarks.place import ROOT, Broker, Place
from servers.processes import tethered

Say = Callable[[str], None]
PROGRESS_EVERY = 10.0  # seconds
CLEANING = 60.0  # seconds a child may take to clean up


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One interleaved run; `timeout` bounds each measurement, in seconds.

    `variants` gives a run of one contender under several parameters a line each:
    label -> (contender, parameters on top of `params`).
    """

    scenario: str
    contenders: tuple[str, ...]
    rounds: int
    params: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    broker: Broker = "redis"
    timeout: float = 900.0

    def lines(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Return what takes turns: label -> (contender, all its parameters).

        Raises `ValueError` for a parameter that the scenario has not.
        """
        known = scenarios.load(self.scenario).DEFAULTS
        plain: dict[str, tuple[str, Mapping[str, Any]]] = {
            name: (name, {}) for name in self.contenders
        }
        named = plain | dict(self.variants)
        lines = {
            label: (name, {**known, **self.params, **more}) for label, (name, more) in named.items()
        }
        for _, params in lines.values():
            if unknown := params.keys() - known.keys():
                raise ValueError(f"{self.scenario} has no parameter {', '.join(sorted(unknown))}")
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The results of a plan: label -> one entry a round."""

    plan: Plan
    results: Mapping[str, list[dict[str, float] | None]]

    def ratios(self, metric: str, above: str, below: str) -> list[float]:
        """Divide one line by another, round by round; empty if either is not there."""
        if above not in self.results or below not in self.results:
            return []
        return spread.ratios(self.results[above], self.results[below], metric)

    def values(self, metric: str, label: str) -> list[float]:
        """Return one line's metric, round by round."""
        return spread.values(self.results.get(label, []), metric)


class Failed(Exception):
    """A measuring process ended without a result; carries the end of its output."""


class Child:
    """The measuring process of one line of a plan."""

    def __init__(self, plan: Plan, contender: str, params: Mapping[str, Any], place: Place):
        self._timeout = plan.timeout
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed at the end
        self._popen = subprocess.Popen(
            tethered(
                [sys.executable, "-m", "benchmarks.child", plan.scenario, json.dumps(params)], None
            ),
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=place.measuring(contender, plan.broker).environment(),
        )

    def ready(self) -> None:
        """Wait until it has prepared itself."""
        self._read("READY")

    def result(self) -> dict[str, float]:
        """Wait for its next result."""
        found: dict[str, float] = json.loads(self._read("RESULT "))
        return found

    def slice(self) -> dict[str, float]:
        """Let it run one slice."""
        assert self._popen.stdin
        with contextlib.suppress(BrokenPipeError):  # it is gone: reading says what it wrote
            self._popen.stdin.write("go\n")
            self._popen.stdin.flush()
        return self.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Let it clean up; end it at once if we are interrupted, and after a minute anyway."""
        assert self._popen.stdin
        if kind is not None:
            self._popen.terminate()
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        try:
            self._popen.wait(timeout=CLEANING)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._log.close()

    def _read(self, word: str) -> str:
        assert self._popen.stdout
        timer = threading.Timer(self._timeout, self._popen.terminate)
        timer.start()
        try:
            for line in self._popen.stdout:
                if line.startswith(word):
                    return line[len(word) :]
        finally:
            timer.cancel()
        self._log.seek(0)
        raise Failed(self._log.read()[-2500:].strip() or f"nothing within {self._timeout:g} s")


def run(plan: Plan, place: Place, say: Say) -> Measured:
    """Run the plan; a measurement that fails is said and counts as None in its round."""
    ways = _run_slices if scenarios.sliced(scenarios.load(plan.scenario)) else _run_whole
    return Measured(plan=plan, results=ways(plan, place, say))


def in_turn(names: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Yield (round, name): A B C, then B C A, and so on."""
    for number in range(rounds):
        at = number % len(names)
        yield from ((number, name) for name in (*names[at:], *names[:at]))


def _run_whole(plan: Plan, place: Place, say: Say) -> dict[str, list[dict[str, float] | None]]:
    lines, main = plan.lines(), scenarios.load(plan.scenario).MAIN
    results: dict[str, list[dict[str, float] | None]] = {label: [] for label in lines}
    for number, label in in_turn(list(lines), plan.rounds):
        begun = time.monotonic()
        found = _measure(plan, *lines[label], place, say)
        results[label].append(found)
        shown = f"{main} {found[main]:,.4g}" if found else "failed"
        took = time.monotonic() - begun
        say(f"{plan.scenario} round {number + 1}/{plan.rounds} {label}: {shown} ({took:.0f} s)")
    return results


def _measure(
    plan: Plan, contender: str, params: Mapping[str, Any], place: Place, say: Say
) -> dict[str, float] | None:
    with Child(plan, contender, params, place) as child:
        try:
            return child.result()
        except Failed as error:
            say(f"{contender} failed: {error}")
            return None


def _run_slices(plan: Plan, place: Place, say: Say) -> dict[str, list[dict[str, float] | None]]:
    with contextlib.ExitStack() as stack:
        children: dict[str, Child | None] = {}
        for label, (contender, params) in plan.lines().items():
            child = stack.enter_context(Child(plan, contender, params, place))
            children[label] = child if _prepared(child, label, say) else None
        return _take_slices(plan, children, say)


def _prepared(child: Child, label: str, say: Say) -> bool:
    try:
        child.ready()
    except Failed as error:
        say(f"{label} failed: {error}")
        return False
    return True


def _take_slices(
    plan: Plan, children: dict[str, Child | None], say: Say
) -> dict[str, list[dict[str, float] | None]]:
    results: dict[str, list[dict[str, float] | None]] = {label: [] for label in children}
    said = 0.0
    for number, label in in_turn(list(children), plan.rounds):
        if time.monotonic() - said > PROGRESS_EVERY:
            said = time.monotonic()
            say(f"{plan.scenario} {dict(plan.params)}: round {number + 1} of {plan.rounds}")
        results[label].append(_slice(children, label, say))
    return results


def _slice(children: dict[str, Child | None], label: str, say: Say) -> dict[str, float] | None:
    child = children[label]
    if child is None:
        return None
    try:
        return child.slice()
    except Failed as error:
        say(f"{label} failed, and is out: {error}")
        children[label] = None
        return None
