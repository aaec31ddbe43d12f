"""Whether two results are the same, and where they differ; values are never told."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from django.db.models import F

from celery_guard.enqueue.rollout.models import Mismatch
from celery_guard.jobs.clock import DatabaseNow
from celery_guard.jobs.storable import storable

MOST = 20
"""Most places of one difference that are told."""


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A way in which a run differed. ``name`` groups: equal for two that have the same cause."""

    name: str
    example: str = ""


def difference(
    expected: Any, found: Any, compare: Callable[[Any, Any], Any] | None
) -> Difference | None:
    """How ``found`` differs from ``expected``, both as JSON gives them; None where it doesn't.

    :param compare: has the last word, where there is one: True, False, or a name.
    """
    if compare is not None:
        told = compare(expected, found)
        if isinstance(told, str) and told:
            return Difference(told)
        if told:
            return None
    places = list(islice(_places(expected, found, "result"), MOST))
    if not places:
        return None if compare is None else Difference("result")
    names = sorted({re.sub(r"\[\d+\]", "[]", place.partition(":")[0]) for place in places})
    return Difference(", ".join(names), "\n".join(places))


def _places(expected: Any, found: Any, path: str) -> Iterator[str]:
    match expected, found:
        case dict(), dict():
            for name in sorted({*expected, *found}, key=str):
                yield from _places_in(expected, found, name, f"{path}.{name}")
        case list(), list() if len(expected) == len(found):
            for n, (one, other) in enumerate(zip(expected, found, strict=True)):
                yield from _places(one, other, f"{path}[{n}]")
        case list(), list():
            yield f"{path}: {len(found)} items instead of {len(expected)}"
        case _ if type(expected) is not type(found):
            yield f"{path}: {type(found).__name__} instead of {type(expected).__name__}"
        case _ if expected != found:
            yield f"{path}: another {type(found).__name__}"


def _places_in(
    expected: Mapping[str, Any], found: Mapping[str, Any], name: str, path: str
) -> Iterator[str]:
    if name not in found:
        yield f"{path}: missing"
    elif name not in expected:
        yield f"{path}: not expected"
    else:
        yield from _places(expected[name], found[name], path)


def keep(using: str, task: str, job: uuid.UUID, found: Difference) -> None:
    """Count a mismatch in its group, in the open transaction; one that was settled is open again."""
    # Names in a result may be any text.
    name, example = storable(found.name), storable(found.example)
    now, text = DatabaseNow(), f"{task}\n{name}"
    group: Mapping[str, str] = {
        "task": task,
        "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:32],
    }
    rows = Mismatch.objects.using(using)
    new = Mismatch(**group, difference=name[:255], first_at=now, last_at=now)
    rows.bulk_create([new], ignore_conflicts=True)
    rows.filter(**group).update(
        count=F("count") + 1,
        last_at=now,
        job=job,
        example=example[:2000],
        settled_at=None,
        settled_by="",
    )
