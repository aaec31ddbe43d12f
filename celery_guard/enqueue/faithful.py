"""Arguments that would arrive as something else are refused at the call."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.utils.functional import Promise
from kombu import serialization

from celery_guard.errors import NotSerializable

JSON = "json"
_SIMPLE = frozenset({str, int, bool, type(None)})
_KEPT = frozenset(
    {
        *_SIMPLE,
        bytes,
        dt.date,
        dt.datetime,
        dt.time,
        decimal.Decimal,
        uuid.UUID,
    }
)
"""What kombu's JSON brings back as the very type it was."""
_TAGGED = {"__type__", "__value__"}


def check_faithful(
    task: str, args: Sequence[Any], kwargs: Mapping[str, Any], serializer: str = JSON
) -> None:
    """Refuse arguments that a worker would see with another value or type.

    :raises NotSerializable: naming every such argument.
    """
    named = [*((f"args[{n}]", v) for n, v in enumerate(args)), *kwargs.items()]
    odd = [(place, v) for place, v in named if type(v) not in _SIMPLE or _is_too_long(v)]
    if not odd:
        return
    faults = [fault for place, value in odd for fault in _faults_in(place, value, serializer)]
    if faults:
        raise NotSerializable(f"{task}: " + "; ".join(faults))


_CHANGED = "would arrive as something else"
_MOST_BITS = 14_000
"""Python makes no text of whole numbers beyond 4,300 digits, nor numbers of such texts."""


def _is_too_long(value: Any) -> bool:
    return type(value) is int and value.bit_length() > _MOST_BITS


def _faults_in(place: str, value: Any, serializer: str) -> list[str]:
    if serializer != JSON and not _is_too_long(value):
        return [] if _returns(value, serializer) else [f"{place} {_CHANGED}"]
    try:
        return list(_faults(place, value))
    except RecursionError:
        return [f"{place} is nested too deeply"]


def _faults(place: str, value: Any) -> Iterator[str]:
    kind = type(value)
    if kind is list:
        for n, item in enumerate(value):
            yield from _faults(f"{place}[{n}]", item)
    elif kind is dict:
        yield from _faults_of_names(place, value)
        for name, item in value.items():
            yield from _faults(f"{place}[{name!r}]", item)
    elif _is_too_long(value):
        yield f"{place} is a whole number with too many digits"
    elif kind is float and not math.isfinite(value):
        yield f"{place} is {value!r}, which JSON has no word for"
    elif kind is not float and kind not in _KEPT and not _returns(value, JSON):
        yield f"{place} is {_a(kind)}, which {_hint(value)}"


def _faults_of_names(place: str, value: Mapping[Any, Any]) -> Iterator[str]:
    for name in value:
        if type(name) is not str:
            yield f"{place} has {_a(type(name))} as a key, which would arrive as text"
    if value.keys() == _TAGGED:
        yield f"{place} looks like one of the encoder's own marks, and {_CHANGED}"


def _returns(value: Any, serializer: str) -> bool:
    try:
        content_type, encoding, data = serialization.dumps(value, serializer=serializer)
        back = serialization.loads(data, content_type, encoding, accept=[content_type])
    # Encoders and decoders raise what they like; whatever it is, the value doesn't come back.
    except Exception:  # noqa: BLE001
        return False
    return _same(value, back)


def _same(sent: Any, back: Any) -> bool:
    if type(sent) is not type(back):
        return False
    if isinstance(sent, dict):
        return sent.keys() == back.keys() and all(_same(sent[n], back[n]) for n in sent)
    if isinstance(sent, list | tuple):
        return len(sent) == len(back) and all(map(_same, sent, back))
    return bool(sent == back)


def _a(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


_HINTS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (Promise, "would be told in the worker's language: pass str(…)"),
    (enum.Enum, "would arrive without its type: pass .value"),
    (tuple, "would arrive as a list: pass list(…)"),
    ((set, frozenset), "has no encoding: pass sorted(…)"),
    (dt.timedelta, "has no encoding: pass .total_seconds()"),
    (str, "would arrive as plain text: pass str(…)"),
    (dict, "would arrive as a plain dict: pass dict(…)"),
)


def _hint(value: Any) -> str:
    for kinds, hint in _HINTS:
        if isinstance(value, kinds):
            return hint
    if hasattr(value, "_meta"):
        return "is only the row as it is now: pass its primary key"
    return f"has no encoding or {_CHANGED}: pass plain values"


def signatures_in(steps: object) -> Iterator[Mapping[str, Any]]:
    """The simple signatures in what follows a task: links, errbacks, a chain, a chord's body."""
    if isinstance(steps, list | tuple):
        for step in steps:
            yield from signatures_in(step)
    elif isinstance(steps, Mapping) and "task" in steps and "subtask_type" in steps:
        yield from _signatures(steps)
    elif isinstance(steps, Mapping):
        yield from signatures_in(list(steps.values()))


def _signatures(step: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    parts = step["kwargs"] or {}
    if step["subtask_type"] in ("chain", "group", "chord"):
        yield from signatures_in([parts.get(name) for name in ("tasks", "header", "body")])
    else:
        yield step
    options = step.get("options") or {}
    yield from signatures_in([options.get(name) for name in ("link", "link_error", "chord")])
