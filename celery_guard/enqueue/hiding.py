"""Arguments that only the body is to see: those that a task declares, and those that a call hides.

Celery shows a call by two texts in its message, ``argsrepr`` and ``kwargsrepr``: in logs, in
events, to whoever inspects a worker. A declared argument is not in them, and what they don't
show, the text of an error doesn't either.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from celery import Celery
from celery.utils.saferepr import saferepr

if TYPE_CHECKING:
    from celery_guard.enqueue.declaration import Guarded

HIDDEN = "<hidden>"
SHORTEST = 4
"""Values of fewer characters are in any text, and say nothing there."""
_MOST = 1000
"""Exceptions of one chain that are looked at."""
_SLOTS = ("filename", "filename2", "strerror", "object", "reason")
_DATABASE = ("django.db", "psycopg", "MySQLdb", "pymysql", "sqlite3")


def sensitive_faults(given: Mapping[str, Any], arguments: Collection[str]) -> Iterator[str]:
    """What is wrong with the option ``sensitive``."""
    shown = {option: given.get(option) for option in ("key", "tenant")}
    shown["coalesce key"] = getattr(given.get("coalesce"), "key", None)
    names = given.get("sensitive") or ()
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        yield f"sensitive must be a tuple of names of arguments, not {names!r}"
        return
    for name in names:
        if name not in arguments:
            yield f"sensitive names {name!r}, which is no argument; known: {', '.join(arguments)}"
        for option, template in shown.items():
            if isinstance(template, str) and f"{{{name}}}" in template:
                yield f"{option} {template!r} shows {name!r}, which is sensitive"


def text_of(app: Celery, value: Any) -> str:
    """``value`` as Celery shows it in ``argsrepr`` and ``kwargsrepr``."""
    amqp = app.amqp
    # Celery below 5.7 has no such setting, and goes three levels deep.
    levels = getattr(app.conf, "task_repr_maxlevels", 3)
    return str(saferepr(value, amqp.argsrepr_maxsize, maxlevels=levels))


def hide(app: Celery, task: Guarded | None, message: Any) -> None:
    """Take the declared arguments out of the texts of a message that Celery has built.

    Texts that the caller gave are the caller's, and stay.
    """
    if task is None or not task.guard.sensitive:
        return
    args, kwargs, _ = message.body
    shown = _shown(task, args, kwargs)
    told = zip(("argsrepr", "kwargsrepr"), ("args", "kwargs"), (args, kwargs), shown, strict=True)
    for header, fact, given, kept in told:
        if message.headers.get(header) == text_of(app, given):
            message.headers[header] = text_of(app, kept)
            if message.sent_event:
                message.sent_event[fact] = message.headers[header]


def _shown(
    task: Guarded, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    hidden = task.guard.sensitive
    names = _names(task, len(args))
    kept = [HIDDEN if name in hidden else one for name, one in zip(names, args, strict=True)]
    named = {n: HIDDEN if _name(task, n) in hidden else one for n, one in kwargs.items()}
    return tuple(kept) if isinstance(args, tuple) else kept, named


def _names(task: Guarded, count: int) -> list[str]:
    """The arguments that ``count`` values by position belong to."""
    found: list[str] = []
    for parameter in inspect.signature(task.run).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return (found + [parameter.name] * count)[:count]
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            found.append(parameter.name)
    return (found + [""] * count)[:count]


def _name(task: Guarded, given: str) -> str:
    """The argument that a value given by this name belongs to."""
    parameters = inspect.signature(task.run).parameters
    others = [p.name for p in parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD]
    return given if given in parameters or not others else others[0]


def carried(app: Celery, request: Any) -> dict[str, str]:
    """The texts of a request whose call hides arguments, for a message made of the same request."""
    texts = {name: request.get(name) for name in ("argsrepr", "kwargsrepr")}
    return {name: text for name, text in texts.items() if text} if _hides(app, request) else {}


def _hides(app: Celery, request: Any) -> bool:
    return _differs(app, request.get("argsrepr"), request.args or ()) or _differs(
        app, request.get("kwargsrepr"), request.kwargs or {}
    )


def _differs(app: Celery, text: str | None, given: Any) -> bool:
    if not text:
        return False
    # A message brings a list, whatever the caller gave.
    forms = (given,) if isinstance(given, Mapping) else (tuple(given), list(given))
    return all(text != text_of(app, form) for form in forms)


def hidden_values(
    app: Celery, task: Guarded, request: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[str]:
    """The texts of arguments that are declared sensitive, or that the call's own texts don't show."""
    hidden = task.guard.sensitive
    named = [one for name, one in kwargs.items() if _name(task, name) in hidden]
    found = set(_texts(named))
    for name, one in zip(_names(task, len(args)), args, strict=True):
        found.update(_texts(one) if name in hidden else ())
    for text, given in ((request.get("argsrepr"), args), (request.get("kwargsrepr"), kwargs)):
        if text and _differs(app, text, given):
            found.update(one for one in _texts(given) if one not in text)
    # The longest first: one value may be a part of another.
    return sorted((one for one in found if len(one) >= SHORTEST), key=len, reverse=True)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        yield repr(value)[1:-1]
    elif isinstance(value, bytes):
        yield from _texts(value.decode("utf-8", "backslashreplace"))
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _texts(one)
            yield from _texts(name)
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _texts(one)
    elif not isinstance(value, bool | None):
        yield str(value)


def without(text: str, hidden: Collection[str]) -> str:
    """``text`` with :data:`HIDDEN` in the place of every such value."""
    for value in hidden:
        text = text.replace(value, HIDDEN)
    return text


def veil(error: BaseException | None, hidden: Collection[str]) -> None:
    """Take the values out of what ``error``, its causes and its context say, in place.

    Reaches what Python's, Django's and the drivers' exceptions make their text of: their arguments
    and attributes. Of a database's error the first line stays: the others quote rows.
    """
    todo, seen = [error], set[int]()
    while hidden and todo and len(seen) < _MOST:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        todo += [one.__cause__, one.__context__]
        # A site's exception may refuse anything; the attempt's end is written down all the same.
        with contextlib.suppress(Exception):
            todo += _veil(one, hidden)


def _veil(error: BaseException, hidden: Collection[str]) -> list[BaseException]:
    """Veil one exception; return those that it holds."""
    given = error.args
    if type(error).__module__.startswith(_DATABASE):
        given = tuple(_first_line(value) for value in given)
    error.args = tuple(_veiled(value, hidden) for value in given)
    held: list[BaseException] = [*getattr(error, "exceptions", ())]
    for name, value in [*vars(error).items(), *((s, getattr(error, s, None)) for s in _SLOTS)]:
        if isinstance(value, BaseException):
            held.append(value)
        elif (kept := _veiled(value, hidden)) != value:
            with contextlib.suppress(AttributeError, TypeError):
                setattr(error, name, kept)
    return held


def _first_line(value: Any) -> Any:
    return value.strip().partition("\n")[0] if isinstance(value, str) else value


def _veiled(value: Any, hidden: Collection[str]) -> Any:
    match value:
        case str():
            return without(value, hidden)
        case bytes():
            text = value.decode("utf-8", "backslashreplace")
            kept = without(text, hidden)
            return value if kept == text else kept.encode()
        case list() | tuple():
            kinds = [_veiled(one, hidden) for one in value]
            return kinds if isinstance(value, list) else tuple(kinds)
        case dict():
            return {_veiled(name, hidden): _veiled(one, hidden) for name, one in value.items()}
        case None | bool() | BaseException():
            return value
        case int() | float():
            kept = without(str(value), hidden)
            return value if kept == str(value) else kept
        case _:
            return value
