"""What a task declares about itself."""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import string
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from celery_guard.conf import guard_settings, sound_settings
from celery_guard.enqueue.binding import Shape
from celery_guard.enqueue.coalescing import Coalescing, faults_of
from celery_guard.enqueue.hiding import sensitive_faults
from celery_guard.errors import MissingKey

if TYPE_CHECKING:
    from celery_guard.enqueue.call import Call
    from celery_guard.outbox.capture import Captured


class Guarded(Protocol):
    """A guarded task, as the rooms see it."""

    name: str
    guard: Declaration
    guard_shape: Shape | None
    guard_template: Any
    ignore_result: bool
    expires: Any

    @property
    def request(self) -> Any:
        """The request that runs now."""

    @property
    def run(self) -> Callable[..., Any]:
        """The body."""

    def signature_from_request(self, *args: Any, **options: Any) -> Any:
        """Celery's way to repeat the current request."""

    def AsyncResult(self, task_id: str) -> Any:  # noqa: N802
        """The handle of a job of this task."""

    def guard_handle(self, captured: Captured, call: Call) -> Any:
        """The handle of a call that has been written, or will be at the end of its batch."""

    def lane_queue(self) -> str:
        """The queue of the task's lane."""

    def shadow_name(self, *args: Any) -> Any:
        """Celery's hook for another name in its logs."""


class Unkeyed(enum.Enum):
    """The type of :data:`UNKEYED`."""

    UNKEYED = "unkeyed"


UNKEYED = Unkeyed.UNKEYED
"""Says that every call of a task is work of its own."""

Template = str | Callable[..., Any]
Errors = tuple[type[BaseException], ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The guard's options of one task.

    ``key`` and ``tenant`` are templates over the call's arguments (``"invoice:{order_id}"``) or
    callables that take them. ``coalesce`` is the mark of :func:`coalesce` or :func:`debounce`,
    which stands in the key's place. ``lease`` is in seconds; ``failures`` the budget of transient
    failures; ``None`` means the setting's value. ``cost``: seconds that a run takes, None: measured. ``comparable`` says that the body has no effects
    but business writes on ``using`` and the guard's effects; ``compare`` judges two results.
    ``fallback`` says that the site itself may run the body while the broker is away, and
    ``sensitive`` which arguments only the body is to see.
    """

    key: Template | Unkeyed = UNKEYED
    coalesce: Coalescing | None = None
    lane: str = "medium"
    tenant: Template = ""
    dependency: str = ""
    atomic: bool = True
    transient: Errors = ()
    permanent: Errors = ()
    on_failed: Literal["rerun", "return"] = "rerun"
    lease: float | None = None
    failures: int | None = None
    cost: float | None = None
    using: str | None = None
    comparable: bool = False
    compare: Callable[[Any, Any], Any] | None = None
    fallback: bool = False
    sensitive: Collection[str] = ()

    @property
    def alias(self) -> str:
        """The database that holds this task's ledger."""
        return self.using or guard_settings().using


NAME_LENGTH = 255

OPTIONS = tuple(field.name for field in dataclasses.fields(Declaration))


def declare(
    name: str,
    arguments: Collection[str],
    given: Mapping[str, Any],
    others: Collection[str] = (),
) -> Declaration:
    """The declaration of the task ``name``, whose body takes ``arguments``.

    ``others`` are options that neither the guard nor Celery knows: one that is nearly an option
    of the guard was meant to be one.

    :raises ImproperlyConfigured: naming every fault at once.
    """
    faults = [*_faults(arguments, given), *_misspelt(others)]
    if len(name) > NAME_LENGTH:
        faults.append(f"the name has {len(name)} characters, the ledger keeps {NAME_LENGTH}")
    if faults:
        raise ImproperlyConfigured(f"task {name}: " + "; ".join(faults))
    return Declaration(**{name: value for name, value in given.items() if value is not None})


def _faults(arguments: Collection[str], given: Mapping[str, Any]) -> Iterator[str]:
    yield from _key_faults(given.get("key"), given.get("coalesce"), arguments)
    for option in ("key", "tenant"):
        yield from template_faults(option, given.get(option), arguments)
    for option in ("transient", "permanent"):
        yield from _class_faults(option, given.get(option, ()))
    yield from _named_faults(given)
    if given.get("on_failed", "rerun") not in ("rerun", "return"):
        yield f'on_failed must be "rerun" or "return", not {given["on_failed"]!r}'
    yield from _comparing_faults(given)
    yield from _fallback_faults(given)
    yield from sensitive_faults(given, arguments)
    for option in ("lease", "failures", "cost"):
        value = given.get(option)
        if value is not None and not (isinstance(value, int | float) and value > 0):
            yield f"{option} must be above 0, not {value!r}"


def _comparing_faults(given: Mapping[str, Any]) -> Iterator[str]:
    comparable, compare = given.get("comparable", False), given.get("compare")
    if not isinstance(comparable, bool):
        yield f"comparable must be True or False, not {comparable!r}"
    if compare is not None and not callable(compare):
        yield f"compare must be a callable that takes two results, not {compare!r}"
    elif compare is not None and not comparable:
        yield "compare needs comparable=True"


def _fallback_faults(given: Mapping[str, Any]) -> Iterator[str]:
    fallback = given.get("fallback", False)
    if not isinstance(fallback, bool):
        yield f"fallback must be True or False, not {fallback!r}"
    elif fallback and given.get("coalesce") is not None:
        yield "fallback needs a key: of coalesced requests one waits for the others"


def _key_faults(key: Any, rule: Any, arguments: Collection[str]) -> Iterator[str]:
    if rule is not None:
        yield from _coalescing_faults(rule, key, arguments)
    elif key is None:
        yield (
            'a guarded task needs key="…{argument}…" (the name of the business operation), '
            "@coalesce(…) below it where only the latest state matters, "
            "or key=UNKEYED to say that every call is work of its own"
        )


def _coalescing_faults(rule: Any, key: Any, arguments: Collection[str]) -> Iterator[str]:
    if not isinstance(rule, Coalescing):
        yield "coalesce is no option: put @coalesce(…) or @debounce(…) below the task's decorator"
        return
    if not (key is None or key is UNKEYED):
        yield "a task has a key or a coalesce key, not both"
    if rule.key is None:
        yield "a coalesce key must be a template or a callable, not None"
    yield from template_faults("coalesce key", rule.key, arguments)
    yield from faults_of(rule)


def _named_faults(given: Mapping[str, Any]) -> Iterator[str]:
    # What wrong settings name can't be known: E001 tells them, and every enqueue refuses.
    if (settings := sound_settings()) is not None:
        yield from _choice_faults("lane", given.get("lane", "medium"), settings.lanes)
        if (dependency := given.get("dependency", "")) != "":
            for fault in _choice_faults("dependency", dependency, settings.dependencies):
                yield f'{fault}; a dependency is declared in CELERY_GUARD["dependencies"]'
    if (using := given.get("using")) is not None:
        yield from _choice_faults("using", using, connections.settings)


def _choice_faults(option: str, value: object, known: Collection[str]) -> Iterator[str]:
    if value not in known:
        yield f"{option} {value!r} is not one of {', '.join(known) or 'none'}{_meant(str(value), known)}"


def _meant(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _misspelt(others: Collection[str]) -> Iterator[str]:
    for name in others:
        if difflib.get_close_matches(name, OPTIONS, n=1, cutoff=0.8):
            yield f"{name} is no option{_meant(name, OPTIONS)}"


def _class_faults(option: str, kinds: Any) -> Iterator[str]:
    if not isinstance(kinds, tuple | list):
        yield f"{option} must be a tuple of exception classes, not {kinds!r}"
        return
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            yield f"{option} must hold exception classes, not {kind!r}"


def template_faults(option: str, template: Any, arguments: Collection[str]) -> Iterator[str]:
    """What is wrong with a template or callable over ``arguments``."""
    if isinstance(template, str):
        yield from _text_faults(option, template, arguments)
    elif not (template is None or template is UNKEYED or callable(template)):
        yield f"{option} must be a template or a callable, not {template!r}"


def _text_faults(option: str, template: str, arguments: Collection[str]) -> Iterator[str]:
    try:
        fields = template_fields(template)
    except ValueError as error:
        yield f"{option} {template!r} is no template: {error}"
        return
    if option == "coalesce key" and template == "":
        yield "a coalesce key must not be empty"
    if option == "key" and not fields:
        yield f"key {template!r} names no argument: every call would be the same operation"
    for field in fields:
        if field not in arguments:
            hint = _meant(field, arguments) or f"; known: {', '.join(arguments)}"
            yield f"{option} {template!r} names {field!r}, which is no argument{hint}"


@functools.cache
def template_fields(template: str) -> tuple[str, ...]:
    """The argument names in ``template``.

    :raises ValueError: for anything but plain names in braces.
    """
    fields = []
    for _, field, format_spec, conversion in string.Formatter().parse(template):
        if field is None:
            continue
        if not field.isidentifier():
            raise ValueError(f"{{{field}}} is not the name of an argument")
        if format_spec or conversion:
            raise ValueError(f"{{{field}}} must stand without a format")
        fields.append(field)
    return tuple(fields)


def fill(template: Template, task: str, arguments: Mapping[str, Any]) -> str:
    """The text that ``template`` gives for a call's bound ``arguments``.

    :raises MissingKey: when a value is None, empty, or no plain value.
    """
    if callable(template):
        return _plain(template(**arguments), task, getattr(template, "__name__", "callable"))
    values = {f: _plain(arguments.get(f), task, f) for f in template_fields(template)}
    return template.format_map(values)


_NAMELESS = (type(None), list, tuple, dict, set, float)


def _plain(value: Any, task: str, name: str) -> str:
    if type(value) is int:
        return str(value)
    if isinstance(value, _NAMELESS) or value == "":
        said = repr(value) if value is None or value == "" else f"a {type(value).__name__}"
        raise MissingKey(f"{task}: {name} is {said}, which names no operation")
    if "\x00" in (text := str(value)):
        raise MissingKey(f"{task}: {name} holds a NUL character, which no database stores")
    if not text.isascii():
        _check_encodes(text, task, name)
    return text


def _check_encodes(text: str, task: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MissingKey(f"{task}: {name} holds half a character, which is no text") from error
