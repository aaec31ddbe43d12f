"""One value of the settings: taken as it is, converted, or a fault that says what would fit."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, cast

from celery_guard.conf.modes import ON, Stage, parse_stage
from celery_guard.rate import Rate, parse_rate


def value_of(field: dataclasses.Field[Any], value: object, path: str, faults: list[str]) -> object:
    """``value`` as the setting ``field`` keeps it; its default where ``faults`` gains one."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if (many := _MANY.get(field.metadata["check"])) is not None:
        return many(value, path, faults)
    for fault in _faults_of(field, value):
        faults.append(f"{path} {fault}, not {value!r}")
        return field.default
    return float(cast(float, value)) if isinstance(field.default, float) else value


def _one_rate(value: object, path: str, faults: list[str]) -> Rate | None:
    return None if value is None else next(iter(_rates((value,), path, faults)), None)


def _rates(value: object, path: str, faults: list[str]) -> tuple[Rate, ...]:
    found = []
    for one in value if isinstance(value, list | tuple) else (value,):
        try:
            found.append(parse_rate(one))
        except ValueError as error:
            faults.append(f"{path} {error}, not {one!r}")
    return tuple(found)


def _bursts(value: object, path: str, faults: list[str]) -> tuple[int, ...]:
    found = value if isinstance(value, list | tuple) else (value,)
    wrong = [one for one in found if not (_is_int(one) and cast(int, one) > 0)]
    faults += [f"{path} must be a whole number above 0, not {one!r}" for one in wrong]
    return () if wrong else tuple(cast("list[int]", found))


def _stage(value: object, path: str, faults: list[str]) -> Stage:
    try:
        return parse_stage(value)
    except ValueError as error:
        faults.append(f"{path} {error}, not {value!r}")
        return ON


def _stages(value: object, path: str, faults: list[str]) -> Mapping[str, Stage]:
    if not isinstance(value, Mapping):
        faults.append(f"{path} must be a dict of task names and modes, not {type(value).__name__}")
        return {}
    return {str(name): _stage(mode, f"{path}[{name!r}]", faults) for name, mode in value.items()}


def _names(value: object, path: str, faults: list[str]) -> tuple[str, ...]:
    if isinstance(value, list | tuple | set) and all(isinstance(name, str) for name in value):
        return tuple(value)
    faults.append(f"{path} must be a list of names, not {value!r}")
    return ()


def _redis_url(value: object, path: str, faults: list[str]) -> str:
    if value == "" or (isinstance(value, str) and value.startswith(_REDIS_SCHEMES)):
        return value
    # Without the value: it may hold a password.
    faults.append(f"{path} must be a URL that begins with {', '.join(_REDIS_SCHEMES)}")
    return ""


_REDIS_SCHEMES = ("redis://", "rediss://", "unix://")
_MANY: Mapping[str, Callable[[object, str, list[str]], object]] = {
    "one rate": _one_rate,
    "rate": _rates,
    "burst": _bursts,
    "names": _names,
    "redis url": _redis_url,
    "stage": _stage,
    "stages": _stages,
}


def _faults_of(field: dataclasses.Field[Any], value: object) -> Iterator[str]:
    check, choices = field.metadata["check"], field.metadata["choices"]
    if choices:
        yield from _choice_faults(choices, value)
    elif check in _OTHERS:
        fits, fault = _OTHERS[check]
        if not (value is field.default or fits(value)):
            yield fault
    elif isinstance(field.default, bool | str):
        if not isinstance(value, type(field.default)):
            yield "must be True or False" if isinstance(field.default, bool) else "must be a string"
    else:
        yield from _number_faults(check, value, whole=isinstance(field.default, int))


_OTHERS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "window": (
        lambda v: v is None or v == "auto" or (_is_int(v) and v > 0),
        "must be a number above 0, 'auto' or None",
    ),
    "some": (lambda v: _is_int(v) and v > 0, "must be a whole number above 0 or None"),
    "some seconds": (lambda v: _is_number(v, whole=False) and v > 0, "must be above 0 or None"),
    "some share": (lambda v: _is_share(v) and v > 0, "must be above 0 and at most 1, or None"),
    "share": (lambda v: _is_share(v) and v < 1, "must be from 0 to below 1"),
    "callable": (
        lambda v: callable(v) or (isinstance(v, str) and "." in v),
        "must be a callable, its dotted path or None",
    ),
}


def _is_share(value: object) -> bool:
    return _is_number(value, whole=False) and 0 <= cast(float, value) <= 1


def _choice_faults(choices: tuple[str, ...], value: object) -> Iterator[str]:
    if value not in choices:
        close = difflib.get_close_matches(str(value), choices, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        yield f"must be one of {', '.join(choices)}{hint}"


def _number_faults(check: str, value: object, *, whole: bool) -> Iterator[str]:
    if not _is_number(value, whole=whole):
        yield "must be a whole number" if whole else "must be a number"
    elif check == "part" and not 0 < cast(float, value) <= 1:
        yield "must be above 0 and at most 1"
    elif cast(float, value) < 0 or (check == "positive" and not value):
        yield "must be above 0" if check == "positive" else "must not be below 0"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object, *, whole: bool) -> bool:
    if whole or _is_int(value):
        return _is_int(value)
    return isinstance(value, float) and math.isfinite(value)
