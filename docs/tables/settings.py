"""The settings: names, defaults and meanings as ``celery_guard/conf/sections.py`` has them."""

import ast
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from celery_guard import conf
from celery_guard.rate import Rate
from docs.tables.markdown import code, prose, table

_HEAD = ("setting", "default", "meaning")
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))


_PREFIXES = {
    "general": "",
    "lane": "lanes.<name>.",
    "lane admission": "lanes.<name>.admission.",
    "lane small": "lanes.<name>.small.",
    "dependency": "dependencies.<name>.",
    "breaker": "dependencies.<name>.breaker.",
}


def sections() -> dict[str, type]:
    """The nested dicts of ``CELERY_GUARD`` by name; the outermost is called "general"."""
    whole = conf.Settings()
    values = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)}
    nested = {n: type(value) for n, value in values.items() if dataclasses.is_dataclass(value)}
    named = {"lane": conf.Lane, "lane admission": conf.LaneAdmission}
    named |= {"dependency": conf.Dependency, "breaker": conf.Breaker}
    named |= {"lane small": conf.Small}
    named |= {"rollout.fallback": conf.Fallback}
    return {"general": conf.Settings, **nested, **named}


def keys() -> set[str]:
    """Every setting by its full name, ``lanes.<name>.objective`` for those of a lane."""
    return {full for section in sections() for full, _ in _fields(section)}


def _fields(section: str) -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    prefix = _PREFIXES.get(section, f"{section}.")
    left_out = {
        "general": {"lanes", "dependencies", *sections()},
        "lane": {"name", "admission", "small"},
        "dependency": {"name", "breaker"},
        "rollout": {"fallback"},
    }.get(section, set())
    for field in dataclasses.fields(sections()[section]):
        if field.name not in left_out:
            yield prefix + field.name, field


def _table_of(section: str) -> list[str]:
    meanings = _meanings(sections()[section])
    return table(
        _HEAD,
        (
            (code(full), _default(field), meanings.get(field.name, ""))
            for full, field in _fields(section)
        ),
    )


def _meanings(kind: type) -> dict[str, str]:
    """The string under a field says what it means; where there is none, the class' own does."""
    (body,) = ast.parse(inspect.getsource(kind)).body
    found: dict[str, str] = {}
    name = ""
    for node in body.body if isinstance(body, ast.ClassDef) else ():
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = prose(kind.__doc__)
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                found[name] = prose(text)
    return found


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if value in ((), dataclasses.MISSING):
        return ""
    if isinstance(value, float) and field.metadata["unit"] == "seconds":
        number = code(f"{value:.10g}")
        return number if 1 <= value < 60 else f"{number} ({_human(value)})"
    if isinstance(value, float):
        return code(f"{value:g}")
    if isinstance(value, conf.Stage | Rate):
        return code(f'"{value}"')
    return code(repr(value).replace("'", '"'))


def _human(seconds: float) -> str:
    size, unit = next(pair for pair in _UNITS if seconds >= pair[0])
    return f"{seconds / size:g} {unit}"


def _lanes() -> list[str]:
    lanes, _ = conf.read_settings({})
    rows = ((code(lane.name), _human(lane.objective)) for lane in lanes.lanes.values())
    return table(("lane", "age objective"), rows)


TABLES: dict[str, Callable[[], list[str]]] = {
    "lanes": _lanes,
    **{f"settings {name}": functools.partial(_table_of, name) for name in sections()},
}
