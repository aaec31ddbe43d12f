"""From the nested dict to the dataclasses, with every fault on the way."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from typing import Any, cast

from django.conf import settings as django_settings

from celery_guard.conf.rollout import Fallback, Rollout
from celery_guard.conf.sections import (
    DEFAULT_LANES,
    Admission,
    Breaker,
    Dependency,
    Lane,
    LaneAdmission,
    Outbox,
    Relay,
    Retention,
    Run,
    Scale,
    Settings,
    Small,
    Snapshot,
    Status,
    Sweep,
    Tenants,
)
from celery_guard.conf.values import value_of


def read_settings(raw: object) -> tuple[Settings, list[str]]:
    """The settings ``raw`` describes, and every fault found in it."""
    faults: list[str] = []
    if not isinstance(raw, Mapping):
        return Settings(), [f"CELERY_GUARD must be a dict, not {type(raw).__name__}"]
    settings = cast(Settings, build(Settings, raw, "", faults))
    lanes = _lanes(raw.get("lanes", {}), faults)
    dependencies = _dependencies(raw.get("dependencies", {}), faults)
    faults.extend(
        f"rollout.fallback.lanes: {name!r} is not one of {', '.join(lanes)}"
        for name in settings.rollout.fallback.lanes
        if lanes and name not in lanes
    )
    return dataclasses.replace(settings, lanes=lanes, dependencies=dependencies), faults


def _lanes(raw: object, faults: list[str]) -> dict[str, Lane]:
    if not isinstance(raw, Mapping):
        faults.append(f"lanes must be a dict, not {type(raw).__name__}")
        return {}
    lanes: dict[str, Lane] = {}
    for name in dict.fromkeys([*DEFAULT_LANES, *map(str, raw)]):
        given = raw.get(name, {})
        if not isinstance(given, Mapping):
            faults.append(f"lanes.{name} must be a dict, not {type(given).__name__}")
            continue
        lane = cast(
            Lane, build(Lane, {**DEFAULT_LANES.get(name, {}), **given}, f"lanes.{name}.", faults)
        )
        lanes[name] = dataclasses.replace(lane, name=name, queue=lane.queue or _queue(name))
    _same_queue(lanes, faults)
    faults.extend(
        f"lanes.{lane.name}.min_workers: {lane.min_workers} is above max_workers, {lane.max_workers}"
        for lane in lanes.values()
        if lane.min_workers > lane.max_workers
    )
    return lanes


def _queue(name: str) -> str:
    return (default_queue or [_django_default_queue()])[0] if name == "medium" else name


def _django_default_queue() -> str:
    return str(getattr(django_settings, "CELERY_TASK_DEFAULT_QUEUE", "") or "celery")


default_queue: list[str] = []


def _same_queue(lanes: Mapping[str, Lane], faults: list[str]) -> None:
    seen: dict[str, str] = {}
    for lane in lanes.values():
        if other := seen.get(lane.queue):
            faults.append(f"lanes.{lane.name}.queue: {lane.queue!r} is the queue of {other!r} too")
        seen[lane.queue] = lane.name


_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def _dependencies(raw: object, faults: list[str]) -> dict[str, Dependency]:
    if not isinstance(raw, Mapping):
        faults.append(f"dependencies must be a dict, not {type(raw).__name__}")
        return {}
    return {str(name): _dependency(str(name), raw[name], faults) for name in raw}


def _dependency(name: str, given: object, faults: list[str]) -> Dependency:
    path = f"dependencies.{name}"
    if not _NAME.fullmatch(name):
        faults.append(f"{path}: a name has 1 to 64 letters, digits, '_', '.', '-'")
    if not isinstance(given, Mapping):
        faults.append(f"{path} must be a dict, not {type(given).__name__}")
        return Dependency(name=name)
    found = cast(Dependency, build(Dependency, given, path + ".", faults))
    if len(found.burst) > 1 and len(found.burst) != len(found.rate):
        faults.append(f"{path}.burst must be one number, or one for each rate")
        found = dataclasses.replace(found, burst=())
    return dataclasses.replace(found, name=name)


_SECTIONS: Mapping[str, type] = {
    "breaker": Breaker,
    "outbox": Outbox,
    "relay": Relay,
    "run": Run,
    "sweep": Sweep,
    "snapshot": Snapshot,
    "retention": Retention,
    "status": Status,
    "tenants": Tenants,
    "scale": Scale,
    "small": Small,
    "rollout": Rollout,
    "fallback": Fallback,
}


def _section_of(kind: type, name: str) -> type | None:
    if name == "admission":
        return LaneAdmission if kind is Lane else Admission
    return _SECTIONS.get(name)


def build(kind: type, raw: Mapping[Any, Any], path: str, faults: list[str]) -> object:
    fields = {
        f.name: f
        for f in dataclasses.fields(kind)
        if not (kind in (Lane, Dependency) and f.name == "name")
    }
    values: dict[str, object] = {}
    for name, value in raw.items():
        if name not in fields:
            faults.append(_unknown(path, str(name), fields))
        elif kind is Settings and name in ("lanes", "dependencies"):
            continue  # Read by name once the rest is known.
        elif (name == "breaker" and value is False) or (name == "small" and value is None):
            values[name] = None
        elif (section := _section_of(kind, name)) is not None:
            values[name] = _section(section, value, f"{path}{name}", faults)
        else:
            values[name] = value_of(fields[name], value, f"{path}{name}", faults)
    return kind(**values)


def _section(kind: type, raw: object, path: str, faults: list[str]) -> object:
    if not isinstance(raw, Mapping):
        faults.append(f"{path} must be a dict, not {type(raw).__name__}")
        return kind()
    return build(kind, raw, path + ".", faults)


def _unknown(path: str, name: str, fields: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, fields, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(fields))}"
    return f"{path}{name} is not a setting; {hint}"
