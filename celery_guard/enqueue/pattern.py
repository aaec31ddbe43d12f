"""What plain calls of one task have in common that name the same arguments in the same way.

Key, fingerprint and message are texts around a call's own values. Where the values are short and
plain, what stands around them is made once, and a call fills it in.
"""

from __future__ import annotations

import dataclasses
import hashlib
import string
from collections.abc import Mapping, Sequence
from typing import Any

from celery_guard.conf import guard_settings
from celery_guard.enqueue.binding import Shape
from celery_guard.enqueue.declaration import UNKEYED, Guarded
from celery_guard.enqueue.key import KEY_LENGTH, canonical, shape_of_task
from celery_guard.enqueue.tenants import tenant_here
from celery_guard.enqueue.texts import EMBED, MOST, SHORT, Texts, is_plain

Way = tuple[int, tuple[str, ...]]
"""How many arguments a call gives by position, and which by name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Named:
    """A text over the values of a call: ``form`` takes them all, and needs those in ``fields``."""

    form: str
    fields: tuple[int, ...]

    def of(self, values: Sequence[Any]) -> str | None:
        """The text, None where one of the values is missing or it gets too long."""
        for field in self.fields:
            if values[field] is None or values[field] == "":
                return None
        text = self.form.format(*values)
        return text if len(text) <= KEY_LENGTH else None


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """The texts of a call around its values; ``%`` fills Python's or JSON's form of them in.

    ``key`` and ``tenant`` are None where a call has none of its own. ``defaults`` are those
    of the arguments that have one, by their place; what equals its default is no part of the
    fingerprint, and ``prints`` keeps the text for each set of those that do not. ``record`` is what
    ``insert_many_1.sql`` reads of one job; it takes id, key, tenant, fingerprint and place first.
    """

    args: str
    kwargs: str
    body: str
    key: Named | None
    tenant: Named | None
    names: tuple[str, ...]
    defaults: tuple[tuple[int, Any], ...]
    prints: dict[tuple[bool, ...], str]
    record: str

    def texts(self, python: Sequence[str], json: Sequence[str], given: int) -> Texts:
        """The texts of the call's message."""
        return Texts(
            args=self.args % tuple(python[:given]),
            kwargs=self.kwargs % tuple(python[given:]),
            body=(self.body % tuple(json)).encode("ascii"),
        )

    def identity(self, values: Sequence[Any], json: Sequence[str]) -> dict[str, Any] | None:
        """What :func:`~celery_guard.enqueue.request.identity_of` says; None where it may refuse."""
        key, tenant = None, ""
        if self.key is not None and (key := self.key.of(values)) is None:
            return None
        if self.tenant is not None and (tenant := self.tenant.of(values) or "") == "":
            return None
        return {
            "key": key,
            "coalesce_key": None,
            "fingerprint": self.fingerprint(values, json),
            "tenant": tenant or tenant_here(),
        }

    def fingerprint(self, values: Sequence[Any], json: Sequence[str]) -> str:
        """What :func:`~celery_guard.enqueue.key.fingerprint_of` says of the call."""
        usual = tuple(
            [
                type(values[place]) is type(default) and values[place] == default
                for place, default in self.defaults
            ]
        )
        if (form := self.prints.get(usual)) is None:
            form = self.prints[usual] = self._print(usual)
        return hashlib.sha256(form.format(*json).encode("ascii")).hexdigest()[:32]

    def _print(self, usual: tuple[bool, ...]) -> str:
        left_out = {place for (place, _), same in zip(self.defaults, usual, strict=True) if same}
        told = {
            name: f"{{{place}}}" for place, name in enumerate(self.names) if place not in left_out
        }
        members = [f"{canonical(name)}:{told[name]}" for name in sorted(told)]
        return "{{" + ",".join(members) + "}}"


def pattern_of(task: Guarded, way: Way) -> Pattern | None:
    """The pattern of such calls of ``task``; None where each has to be looked at by itself."""
    shape = shape_of_task(task)
    names = _names(shape, way)
    if names is None or not all(map(is_plain, names)):
        return None
    key, tenant = task.guard.key, task.guard.tenant
    if task.guard.coalesce is not None or callable(key) or callable(tenant):
        return None
    given = way[0]
    args = "(%s,)" if given == 1 else f"({', '.join(['%s'] * given)})"
    placed = [f'"{name}": %s' for name in names[given:]]
    shown = [f"'{name}': %s" for name in names[given:]]
    kwargs = f"{{{', '.join(shown)}}}"
    body = f"[[{', '.join(['%s'] * given)}], {{{', '.join(placed)}}}{EMBED}"
    if len(body) + MOST * (SHORT + 2) > guard_settings().outbox.payload_limit:
        return None
    try:
        known = {n: shape.defaults[n] for n in shape.defaults if n not in names}
        return Pattern(
            args=args,
            kwargs=kwargs,
            body=body,
            key=None if key is UNKEYED else _named(str(key), names, known),
            tenant=_named(tenant, names, known) if tenant else None,
            names=names,
            defaults=tuple(
                (n, shape.defaults[a]) for n, a in enumerate(names) if a in shape.defaults
            ),
            prints={},
            record=_record(args, kwargs, body),
        )
    except LookupError:
        return None


def _record(args: str, kwargs: str, body: str) -> str:
    # Of JSON within JSON the database makes the very same text again, without any escapes.
    return (
        '"public_id": "%s", "key": %s, "tenant": %s, "fingerprint": "%s", "place": "%s", '
        f'"args": "{args}", "kwargs": "{kwargs}", "body": {body}'
    )


def _names(shape: Shape, way: Way) -> tuple[str, ...] | None:
    given, by_name = way
    names = (*shape.names[:given], *by_name)
    fits = (
        shape.plain
        and given <= len(shape.names)
        and len(names) <= MOST
        and set(by_name) <= set(shape.names[given:])
        and shape.required <= set(names)
    )
    return names if fits else None


def _named(template: str, names: Sequence[str], known: Mapping[str, Any]) -> Named:
    """``template`` over values by their place.

    :raises LookupError: where it takes an argument that the call does not give.
    """
    form, fields = "", []
    for text, field, _, _ in string.Formatter().parse(template):
        form += text.replace("{", "{{").replace("}", "}}")
        if field is not None:
            if field in known:
                raise LookupError(field)
            fields.append(names.index(field))
            form += f"{{{fields[-1]}}}"
    return Named(form, tuple(fields))
