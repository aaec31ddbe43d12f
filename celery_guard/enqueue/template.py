"""The short way to a finished message, for the commonest calls: ``task.delay(…)`` and in groups.

Celery builds such a message from parts that no call changes but for ten values. They are taken
from one message that Celery built itself; the result is the same, byte for byte. Wherever a call,
the task, a signal receiver or a tracing library could make a difference, Celery builds.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii
from types import MappingProxyType
from typing import Any, cast

from celery import Celery, Task, signals
from celery.utils.nodenames import anon_nodename
from kombu.utils.json import JSONEncoder

from celery_guard.conf import Settings, guard_settings
from celery_guard.enqueue.declaration import Guarded
from celery_guard.enqueue.hiding import text_of
from celery_guard.enqueue.pattern import Pattern, Way, pattern_of
from celery_guard.enqueue.texts import EMBED, Texts, plain_texts, short_texts
from celery_guard.errors import NotSerializable
from celery_guard.outbox.capture import Captured, CapturingProducer, collecting

_ID, _ARGS, _KWARGS, _ORIGIN, _REPLY = _TEXTS = tuple(f"<guard {n} hole>" for n in "iakor")
MOST_KEPT = 100
"""Most that a template keeps of one kind."""
# These are no text, or not always: their quotes belong to the hole.
_ROOT, _GROUP, _INDEX = _VALUES = tuple(f"<guard {n} hole>" for n in "tgx")
_SPLIT = re.compile("(" + "|".join([*_TEXTS, *(f'"{name}"' for name in _VALUES)]) + ")")
PLACES = frozenset({"root_id", "group_id", "group_index", "reply_to", "add_to_parent", "chord"})
"""Options that a group gives its members."""
_BEFORE, _AFTER, _SENT = signals.before_task_publish, signals.after_task_publish, signals.task_sent
NOWHERE: Mapping[str, Any] = MappingProxyType({})
"""The options of a call in no group."""
_encode = JSONEncoder().encode
_IN_PYTHON = {_ID: "%(id)s", _ARGS: "%(args)s", _KWARGS: "%(kwargs)s", _INDEX: "%(place)s"}
_IN_DATABASE = {_ID: "%1$s", _ARGS: "%2$s", _KWARGS: "%3$s", _INDEX: "%4$s"}


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """An envelope with places for a call's own values, as ``%`` and as PostgreSQL fills them."""

    python: str
    database: str


@dataclasses.dataclass(frozen=True, slots=True)
class Template:
    """One task's message: ``form`` takes the values of ``holes`` in their order.

    ``settings``, and what the task says of itself, of its result and its expiry (``said``), are those
    it was made under: Celery asks the task at every call. ``forms`` keeps what calls of one process,
    thread and group have in common, ``patterns`` what those do that name the same arguments, and
    ``commons`` what drafts of one process, thread and tenant do.
    """

    task: Guarded
    model: Captured | None
    form: str
    holes: tuple[str, ...]
    settings: Settings
    said: tuple[object, ...]
    forms: dict[tuple[object, ...], Form] = dataclasses.field(default_factory=dict)
    patterns: dict[Way, Pattern | None] = dataclasses.field(default_factory=dict)
    commons: dict[tuple[object, ...], Any] = dataclasses.field(default_factory=dict)

    def fill(
        self,
        app: Celery,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        task_id: str | None = None,
        place: Mapping[str, Any] = NOWHERE,
    ) -> Captured:
        """The message of one call; ``place`` are options that :func:`placed` has passed.

        :raises NotSerializable: when an argument has no encoding.
        """
        model = self.model
        assert model is not None, "a template without a model fills nothing"
        texts, identity = self._by_pattern(args, kwargs)
        texts = texts or short_texts(args, kwargs) or _texts(app, args, kwargs)
        fills = {
            "args": texts.args,
            "kwargs": texts.kwargs,
            "place": _literal(place.get("group_index")),
        }
        public_id = None
        if task_id is None:
            # What is made here needs no escapes, and need not be read again.
            public_id = uuid.uuid4()
            task_id = quoted = str(public_id)
        else:
            fills["task_id"] = quoted = _quoted(task_id)
        group = place.get("group_id")
        form = self.common_form(app, place)
        # By name: ``dataclasses.replace`` takes as long as all of the rest.
        return Captured(
            task=model.task,
            task_id=task_id,
            args=args,
            kwargs=kwargs,
            body=texts.body,
            envelope_text=form.python % (fills | {"id": quoted}),
            queue=model.queue,
            eta=model.eta,
            expires=model.expires,
            canvas=model.canvas or bool(group),
            awaited=model.awaited or bool(group),
            ignore_result=model.ignore_result,
            public_id=public_id,
            form=form.database,
            fills=fills,
            identity=identity,
        )

    def _by_pattern(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Texts, Mapping[str, Any] | None] | tuple[None, None]:
        pattern = self.pattern(args, kwargs) if type(args) is tuple else None
        values = (*args, *kwargs.values())
        if pattern is None or (plain := plain_texts(values)) is None:
            return None, None
        python, json = plain
        return pattern.texts(python, json, len(args)), pattern.identity(values, json)

    def pattern(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Pattern | None:
        """The pattern of calls that name arguments as this one does."""
        way = (len(args), tuple(kwargs))
        try:
            return self.patterns[way]
        except KeyError:
            if len(self.patterns) >= MOST_KEPT:
                self.patterns.clear()
            pattern = self.patterns[way] = pattern_of(self.task, way)
            return pattern

    def common_form(self, app: Celery, place: Mapping[str, Any]) -> Form:
        """The form of all calls of this process and thread in the same place."""
        reply = place.get("reply_to") or app.thread_oid
        where = (os.getpid(), reply, place.get("root_id") or None, place.get("group_id"))
        if (form := self.forms.get(where)) is None:
            if len(self.forms) >= MOST_KEPT:
                self.forms.clear()
            form = self.forms[where] = self._made(*where[1:])
        return form

    def _made(self, reply: str, root: str | None, group: str | None) -> Form:
        common = {
            _ORIGIN: _quoted(anon_nodename()),
            _REPLY: _quoted(reply),
            _ROOT: None if root is None else _literal(root),
            _GROUP: _literal(group),
        }
        texts = []
        for holes in (_IN_PYTHON, _IN_DATABASE):
            # The form's own signs are doubled, and both ways of filling take that back once.
            values = {name: text.replace("%", "%%") for name, text in common.items() if text}
            values = {_ROOT: f'"{holes[_ID]}"', **values, **holes}
            text = self.form.replace("%%", "%%%%") % tuple([values[hole] for hole in self.holes])
            texts.append(text)
        return Form(*texts)


def placed(task_id: object, options: Mapping[str, Any]) -> bool:
    """Whether a call with these options is a plain one, or a plain member of a group."""
    if task_id is not None and not (type(task_id) is str and task_id):
        return False
    if not options:
        return True
    return (
        options.keys() <= PLACES
        and options.get("chord") is None
        and type(options.get("group_index", 0)) is int
        and all(type(options.get(name, "")) is str for name in ("root_id", "group_id", "reply_to"))
    )


def template_of(task: Guarded, app: Celery) -> Template | None:
    """The template of a plain call of ``task`` as things stand now, or None: let Celery build."""
    if not _plain_now(task, app):
        return None
    template: Template | None = task.guard_template
    said = (task.ignore_result, task.expires, task.guard)
    if template is None or template.settings is not guard_settings() or template.said != said:
        template = task.guard_template = _make(task, app, said)
    return template if template.form else None


def _plain_now(task: Guarded, app: Celery) -> bool:
    return (
        not (_BEFORE.receivers or _AFTER.receivers or _SENT.receivers)
        and app.current_worker_task is None
        and _celerys_own(
            Task.apply_async, Celery.send_task, type(task).shadow_name, type(app).send_task
        )
    )


@functools.lru_cache(maxsize=64)
def _celerys_own(apply: Any, send: Any, shadow_name: Any, apps_send: Any) -> bool:
    return (
        untouched(apply, "celery.app.task")
        and untouched(send, "celery.app.base")
        and untouched(shadow_name, "celery.app.task")
        and untouched(apps_send, "celery.app.base")
    )


def untouched(function: Any, module: str) -> bool:
    """Whether ``function`` is still the one that ``module`` defines: tracing libraries wrap."""
    return function.__module__ == module and not hasattr(function, "__wrapped__")


def _make(task: Guarded, app: Celery, said: tuple[object, ...]) -> Template:
    settings = guard_settings()
    model = _model(task, app)
    if model is None:
        return Template(task, None, "", (), settings, said)
    envelope = model.envelope
    headers = {
        **envelope.headers,
        "argsrepr": _ARGS,
        "kwargsrepr": _KWARGS,
        "origin": _ORIGIN,
        "root_id": _ROOT,
        "group": _GROUP,
        "group_index": _INDEX,
    }
    properties = {**envelope.properties, "reply_to": _REPLY}
    text = dataclasses.replace(envelope, headers=headers, properties=properties).encode()
    pieces = _SPLIT.split(text)
    form = "%s".join(piece.replace("%", "%%") for piece in pieces[::2])
    holes = tuple(piece.strip('"') for piece in pieces[1::2])
    return Template(task, model, form, holes, settings, said)


def _model(task: Guarded, app: Celery) -> Captured | None:
    conf = app.conf
    if conf.task_routes or conf.task_protocol != 2 or task.expires is not None:
        return None
    if task.guard.sensitive:
        return None
    if conf.task_send_sent_event or getattr(task, "_dump_pydantic_arguments", None) is not None:
        return None
    with collecting() as kept:
        app.send_task(
            task.name,
            (),
            {},
            task_id=_ID,
            task_type=task,
            producer=CapturingProducer(app),
            **{"ignore_result": task.ignore_result, **usual_options(task)},
        )
    return kept[0] if kept[0].body == _body((), {}) else None


def _texts(app: Celery, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Texts:
    shown, named = _quoted(text_of(app, args)), _quoted(text_of(app, kwargs))
    return Texts(args=shown, kwargs=named, body=_body(args, kwargs))


def _body(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    try:
        return (_encode([args, kwargs])[:-1] + EMBED).encode()
    except (TypeError, ValueError) as error:
        raise NotSerializable(f"the arguments cannot be encoded: {error}") from error


def _literal(value: str | int | None) -> str:
    if value is None:
        return "null"
    return str(value) if isinstance(value, int) else encode_basestring_ascii(value)


def _quoted(text: str) -> str:
    return encode_basestring_ascii(text)[1:-1]


def usual_options(task: Guarded) -> dict[str, Any]:
    """The options that Celery gives a call of ``task`` that names none."""
    options: dict[str, Any] = cast(Any, task)._get_exec_options()
    return options
