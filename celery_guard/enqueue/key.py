"""Key and fingerprint of a call, made from the encoded form of its arguments."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from kombu.utils.json import JSONEncoder

from celery_guard.enqueue.binding import Bound, Shape, shape_of
from celery_guard.enqueue.declaration import Declaration, Guarded, Unkeyed, fill
from celery_guard.enqueue.tenants import tenant_here
from celery_guard.errors import NotSerializable

KEY_LENGTH = 255

canonical = JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""A value's text in a fingerprint."""


def bind(task: Guarded, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Bound:
    """The call's arguments by name.

    :raises TypeError: when they do not fit the task.
    """
    try:
        return shape_of_task(task).bind(args, kwargs)
    except TypeError as error:
        raise TypeError(f"{task.name}: {error}") from None


def shape_of_task(task: Guarded) -> Shape:
    """What the body of ``task`` takes."""
    if task.guard_shape is None:
        task.guard_shape = shape_of(inspect.signature(task.run))
    return task.guard_shape


def key_of(task: Guarded, declaration: Declaration, bound: Bound) -> str | None:
    """The business key of a call, at most 255 characters; None for an unkeyed task.

    :raises MissingKey: when the template finds no value.
    """
    if isinstance(declaration.key, Unkeyed):
        return None
    return short(fill(declaration.key, task.name, bound.with_defaults()))


def coalesce_key_of(task: Guarded, declaration: Declaration, bound: Bound) -> str | None:
    """What the call has in common with those it coalesces with; None for a task without.

    :raises MissingKey: when the template finds no value.
    """
    if declaration.coalesce is None:
        return None
    return short(fill(declaration.coalesce.key, task.name, bound.with_defaults()))


def short(key: str) -> str:
    """``key``, cut to what the ledger keeps and told apart by a hash where it is longer."""
    if len(key) <= KEY_LENGTH:
        return key
    return f"{key[: KEY_LENGTH - 65]}#{hashlib.sha256(key.encode()).hexdigest()}"


def tenant_of(task: Guarded, declaration: Declaration, bound: Bound) -> str:
    """The tenant a call belongs to; empty for none.

    By its arguments, where the task says how; else that of the job in which it is made.
    """
    if not declaration.tenant:
        return tenant_here()
    return fill(declaration.tenant, task.name, bound.with_defaults())[:255]


def fingerprint_of(bound: Bound) -> str:
    """32 hex digits that are equal for calls that mean the same.

    Arguments are bound first and those equal to their default left out, so f(1, 2) and
    f(a=1, b=2) agree, and a later release may add a default.

    :raises NotSerializable: when an argument has no JSON form to compare.
    """
    try:
        text = canonical(bound.without_defaults())
    except (TypeError, ValueError) as error:
        raise NotSerializable(f"the arguments cannot be compared: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()[:32]
