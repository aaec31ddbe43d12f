"""The options of ``guarded_task`` and of :class:`Provider`, as their own docstrings have them."""

import dataclasses
import enum
import inspect
import re
from typing import Any

import celery_guard
from celery_guard.enqueue.declaration import UNKEYED, Declaration
from docs.tables.markdown import code, prose, table

_PARAM = re.compile(r"^:param (\w+):((?:.*\n?)(?:^[ \t]+.*\n?)*)", re.MULTILINE)


def meanings(told: Any) -> dict[str, str]:
    """What a docstring says of each parameter."""
    return {name: prose(text) for name, text in _PARAM.findall(inspect.getdoc(told) or "")}


def fields(kind: type) -> dict[str, str]:
    """The defaults of a dataclass as they would be written, by the fields' names."""
    return {field.name: _written(field.default) for field in dataclasses.fields(kind)}


def options() -> dict[str, str]:
    """Those of ``guarded_task``; a coalesce key is given by a decorator of its own."""
    return {name: value for name, value in fields(Declaration).items() if name != "coalesce"}


def _written(default: object) -> str:
    if default is UNKEYED:
        # What stands for "no key" inside; a caller has to say so.
        return "must be given"
    if isinstance(default, enum.Enum):
        return code(f"{type(default).__name__}.{default.name}")
    return code(repr(default).replace("'", '"'))


def _options() -> list[str]:
    return _rows("option", options(), meanings(celery_guard.guarded_task))


def _provider() -> list[str]:
    return _rows("field", fields(celery_guard.Provider), meanings(celery_guard.Provider))


def _rows(what: str, defaults: dict[str, str], told: dict[str, str]) -> list[str]:
    rows = ((code(name), value, told[name]) for name, value in defaults.items())
    return table((what, "default", "meaning"), rows)


TABLES = {"guarded task": _options, "provider": _provider}
