"""The same tasks twice, plain and guarded, and canvases made of either."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from celery import chain, chord, group, shared_task

from celery_guard import UNKEYED, guarded_task
from tests.project.shop.witness import leave_trace


def _add(self: Any, x: int, y: int) -> int:
    return x + y


def _double(self: Any, x: int) -> int:
    return 2 * x


def _total(self: Any, numbers: Any) -> int:
    return sum(n if isinstance(n, int) else sum(n) for n in numbers)


def _boom(self: Any, *args: Any) -> None:
    raise ValueError("boom")


def _note(self: Any, task_id: str) -> None:
    leave_trace(_kind(self), "noted")


def _stamps(self: Any, *args: Any) -> list[Any]:
    return [sorted(self.request.stamped_headers or []), self.request.stamps]


def _replaced(self: Any, x: int) -> Any:
    return self.replace(_other(self, "add").s(x, 1))


def _replaced_by_chain(self: Any, x: int) -> Any:
    add = _other(self, "add")
    return self.replace(add.s(x, 1) | add.s(10))


def _replaced_by_chord(self: Any, x: int) -> Any:
    add = _other(self, "add")
    return self.replace(chord([add.s(x, 1), add.s(x, 2)], _other(self, "total").s()))


def _added_to_chord(self: Any, x: int) -> int:
    self.add_to_chord(_other(self, "add").s(x, 100))
    return x


def _kind(task: Any) -> str:
    return str(task.name.split(".")[1])


def _other(task: Any, name: str) -> Any:
    return task.app.tasks[f"canvas.{_kind(task)}.{name}"]


def _all(kind: str, make: Callable[..., Any]) -> SimpleNamespace:
    bodies = (_add, _double, _total, _boom, _note, _stamps, _replaced)
    bodies += (_replaced_by_chain, _replaced_by_chord, _added_to_chord)
    named = {body.__name__.lstrip("_"): body for body in bodies}
    return SimpleNamespace(
        **{
            name: make(name=f"canvas.{kind}.{name}", bind=True)(body)
            for name, body in named.items()
        }
    )


PLAIN = _all("plain", shared_task)
GUARDED = _all("guarded", lambda **options: guarded_task(key=UNKEYED, **options))

Canvas = Callable[[Any], Any]

VALUES: dict[str, Canvas] = {
    "chain": lambda t: chain(t.add.s(1, 1), t.add.s(2), t.double.s()),
    "chain of immutable steps": lambda t: chain(t.add.si(1, 1), t.add.si(5, 5)),
    "chain of chains": lambda t: chain(t.add.s(1, 1), chain(t.double.s(), chain(t.double.s()))),
    "chains in a group": lambda t: group(t.add.s(1, 1) | t.double.s(), t.add.s(3, 3) | t.add.s(4)),
    "group in a chain": lambda t: chain(t.add.s(1, 1), group(t.add.s(1), t.add.s(2)), t.total.s()),
    "group at a chain's end": lambda t: chain(t.add.s(1, 1), group(t.add.s(1), t.double.s())),
    "group after group": lambda t: chain(
        group(t.add.s(1, 1), t.add.s(2, 2)), group(t.total.s(), t.total.s())
    ),
    "nested groups": lambda t: group(group(t.add.s(1, 1), t.add.s(2, 2)), t.add.s(3, 3)),
    "chord": lambda t: chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s()),
    "chord of one": lambda t: chord([t.add.s(1, 1)], t.total.s()),
    "chord of chains": lambda t: chord(
        [t.add.s(1, 1) | t.double.s(), t.add.s(2, 2) | t.double.s()], t.total.s()
    ),
    "chord of chords": lambda t: chord(
        [chord([t.add.s(1, 1), t.add.s(2, 2)], t.total.s()), t.add.s(3, 3)], t.total.s()
    ),
    "chord of a group": lambda t: chord([group(t.add.s(1, 1), t.add.s(2, 2))], t.total.s()),
    "chord with a chain as body": lambda t: chord([t.add.s(1, 1)], t.total.s() | t.double.s()),
    "chord with a group as body": lambda t: chord([t.add.s(1, 1)], group(t.total.s(), t.total.s())),
    "chord after a chord": lambda t: chain(
        group(t.add.s(1, 1), t.add.s(2, 2)),
        t.total.s(),
        group(t.double.s(), t.add.s(1)),
        t.total.s(),
    ),
    "chord of replaced": lambda t: chord([t.replaced.s(1), t.replaced_by_chain.s(1)], t.total.s()),
    "chord that grows": lambda t: chord([t.added_to_chord.s(1), t.add.s(1, 1)], t.total.s()),
    "chord of nothing": lambda t: chord([], t.total.s()),
    "chord of a generator": lambda t: chord((t.add.s(n, n) for n in range(3)), t.total.s()),
    "chord in a chain": lambda t: chain(t.add.s(1, 1), chord([t.add.s(1)], t.total.s())),
    "chord as a chord's body": lambda t: chord([t.add.s(1, 1)], chord([t.total.s()], t.total.s())),
    "chord in a group": lambda t: group(chord([t.add.s(1, 1)], t.total.s()), t.add.s(3, 3)),
    "nested groups in a chain": lambda t: chain(
        t.add.s(1, 1), group(group(t.add.s(1), t.add.s(2)), t.double.s()), t.total.s()
    ),
    "group of a generator": lambda t: group(t.add.s(n, n) for n in range(3)),
    "long chain": lambda t: chain(t.add.s(0, 0), *(t.add.s(1) for _ in range(20))),
    "replaced": lambda t: t.replaced.s(1),
    "replaced in a chain": lambda t: chain(t.add.s(1, 1), t.replaced.s(), t.double.s()),
    "replaced by a chain": lambda t: chain(t.replaced_by_chain.s(1), t.double.s()),
    "replaced by a chord": lambda t: chain(t.replaced_by_chord.s(1), t.double.s()),
    "replaced in a group": lambda t: group(t.replaced.s(1), t.replaced_by_chord.s(2)),
    "map": lambda t: t.double.map([1, 2, 3]),
    "starmap": lambda t: t.add.starmap([(1, 1), (2, 2)]),
    "chunks": lambda t: t.add.chunks([(1, 1), (2, 2), (3, 3)], 2).group(),
    "map in a chord": lambda t: chord([t.double.map([1, 2]), t.add.starmap([(1, 1)])], t.total.s()),
    "stamped": lambda t: _stamped(t.stamps.s()),
    "stamped chain": lambda t: _stamped(chain(t.add.s(1, 1), t.stamps.s())),
    "stamped group": lambda t: _stamped(group(t.stamps.s(), t.stamps.s())),
    "stamped chord": lambda t: _stamped(chord([t.add.s(1, 1)], t.stamps.s())),
}
"""Compared by their results."""

ERRORS: dict[str, Canvas] = {
    "error in a chain": lambda t: chain(t.add.s(1, 1), t.boom.s(), t.double.s()),
    "error in a group": lambda t: group(t.add.s(1, 1), t.boom.s()),
    "error in a chord's header": lambda t: chord([t.add.s(1, 1), t.boom.s()], t.total.s()),
    "error in a chord's body": lambda t: chord([t.add.s(1, 1)], t.boom.s()),
    "error in a chord of chords": lambda t: chord(
        [chord([t.add.s(1, 1), t.boom.s()], t.total.s()), t.add.s(3, 3)], t.total.s()
    ),
}
"""Compared by their errors, and by how often the errback of each is called."""


def _stamped(canvas: Any) -> Any:
    canvas.stamp(request="r1")
    return canvas


def canvases() -> Iterator[tuple[str, Canvas]]:
    """All of them by name, those with errors with an errback."""
    yield from VALUES.items()
    yield from ERRORS.items()
