"""Catches a finished message where Celery hands it to kombu, before anything is sent.

Celery's own sender (``app.amqp.send_task_message``) runs unchanged, so routing, protocol,
headers, publish signals and whatever tracing libraries add are final; only the producer is
ours, and its ``publish`` serialises and keeps instead of sending.
"""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from kombu.exceptions import EncodeError
from kombu.messaging import Producer

from celery_guard.conf import guard_settings
from celery_guard.errors import BadSchedule, NotSerializable
from celery_guard.outbox.envelope import Envelope

# What travels with an undelivered event or a client's own producer means nothing later.
_NEVER_STORED = frozenset({"immediate", "mandatory"})

LAST_YEAR = 2999
"""Later times are refused: "never" is not a time, and some calendars end at 9999."""

Sender = Callable[..., Any]

TICK_HEADER = "guard_tick"
"""The header in which beat names the tick that a message belongs to."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One message as Celery would have sent it.

    ``eta`` and ``expires`` are the instants that its headers name. ``canvas`` says that a chord,
    a chain, a group, a link or an errback waits for this very message; ``awaited`` that one of
    these or a kept result does. ``tick`` is what beat wrote into its header.
    ``public_id`` is what ``task_id`` says, where it is known. ``form`` filled with ``fills`` is
    ``envelope_text`` once more, for many at once: see ``insert_many_1.sql``. ``identity`` are key,
    fingerprint and tenant, where they are known already.
    """

    task: str
    task_id: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    body: bytes
    envelope_text: str
    queue: str
    eta: datetime | None = None
    expires: datetime | None = None
    canvas: bool = False
    awaited: bool = False
    ignore_result: bool = False
    tick: str = ""
    public_id: uuid.UUID | None = dataclasses.field(default=None, compare=False)
    form: str = dataclasses.field(default="", compare=False)
    fills: dict[str, str] | None = dataclasses.field(default=None, compare=False)
    identity: Mapping[str, Any] | None = dataclasses.field(default=None, compare=False)

    @property
    def envelope(self) -> Envelope:
        """The envelope as values; what is stored is ``envelope_text``."""
        return Envelope.decode(self.envelope_text)


class CapturingProducer(Producer):
    """A producer that keeps the one message it is given and never touches a connection."""

    def __init__(self, app: Celery) -> None:
        # Deliberately not ``super().__init__``: that would ask for a channel.
        self.app = app
        self.serializer = app.conf.task_serializer
        self.kept: tuple[bytes, Envelope] | None = None

    @property
    def connection(self) -> CapturingProducer:  # type: ignore[override]
        """Celery asks the connection for error translation only."""
        return self

    def _reraise_as_library_errors(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def publish(  # type: ignore[override]
        self,
        body: object,
        routing_key: str | None = None,
        exchange: Any = None,
        headers: dict[str, Any] | None = None,
        serializer: str | None = None,
        compression: str | None = None,
        declare: Sequence[Any] | None = None,
        delivery_mode: Any = None,
        retry: object = None,
        retry_policy: object = None,
        timeout: object = None,
        confirm_timeout: object = None,
        **properties: Any,
    ) -> None:
        """Keep the message. A second call is the ``task-sent`` event, which is dropped."""
        if self.kept is not None:
            return
        headers = headers if headers is not None else {}
        try:
            prepared: tuple[str | bytes, str, str] = self._prepare(
                body, serializer, None, None, compression, headers
            )
        except (EncodeError, TypeError, ValueError) as error:
            raise NotSerializable(f"the arguments cannot be encoded: {error}") from error
        raw, content_type, encoding = prepared
        stored = {n: v for n, v in properties.items() if _is_stored(n, v)}
        stored["delivery_mode"] = _delivery_mode(delivery_mode)
        self.kept = (
            raw.encode(encoding) if isinstance(raw, str) else raw,
            Envelope(
                content_type=content_type,
                content_encoding=encoding,
                exchange=getattr(exchange, "name", exchange) or "",
                routing_key=routing_key or "",
                headers=headers,
                properties=stored,
                declare=tuple(self._names(declare or (), exchange)),
            ),
        )

    def _names(self, declare: Sequence[Any], exchange: Any) -> Iterator[str]:
        yield from (queue.name for queue in declare)
        # Where a call names an exchange, Celery declares none of its queues, and relies on this
        # process having done so before. The relay must learn of it from the message.
        name = getattr(exchange, "name", exchange)
        if name and all(queue.exchange.name != name for queue in declare):
            bound = (q for q in self.app.amqp.queues.values() if q.exchange.name == name)
            yield from (queue.name for queue in bound)


def _is_stored(name: str, value: object) -> bool:
    # kombu tells a priority of None (none is sent) from one that is not given (0).
    return name not in _NEVER_STORED and (value is not None or name == "priority")


def _delivery_mode(mode: Any) -> int:
    return mode if isinstance(mode, int) else {"transient": 1}.get(mode, 2)


def capture(app: Celery, sender: Sender, name: str, message: Any, options: Any) -> Captured:
    """Run Celery's ``sender`` on ``message`` and return what it would have published.

    :raises NotSerializable: when the body, a header or an option has no encoding.
    """
    producer = CapturingProducer(app)
    args, kwargs, embed = message.body
    # Nothing is sent here, so nothing is ever to be tried again.
    sender(producer, name, message, **{**options, "retry": False})
    assert producer.kept is not None, "Celery's sender publishes exactly one message"
    body, envelope = producer.kept
    headers = envelope.headers
    ignored = bool(headers.get("ignore_result"))
    canvas = bool(headers.get("group") or any(embed.values()))
    return Captured(
        task=name,
        task_id=headers["id"],
        args=args,
        kwargs=kwargs,
        body=body,
        envelope_text=_text_of(envelope),
        queue=(envelope.declare or (envelope.routing_key,))[0],
        eta=instant(headers.get("eta")),
        expires=instant(headers.get("expires")),
        canvas=canvas,
        awaited=canvas or _kept_result(app, ignored),
        ignore_result=ignored,
        tick=str(headers.get(TICK_HEADER) or ""),
    )


def _text_of(envelope: Envelope) -> str:
    try:
        return envelope.encode()
    except (TypeError, ValueError) as error:
        raise NotSerializable(f"the headers or options cannot be encoded: {error}") from error


def _kept_result(app: Celery, ignored: bool) -> bool:
    backend = app.conf.result_backend
    return not ignored and bool(backend) and not str(backend).startswith("disabled")


def instant(text: str | datetime | None) -> datetime | None:
    """The aware instant that a message header names, or None; naive means UTC.

    :raises BadSchedule: when it names none, or one that no database or calendar reaches.
    """
    if text is None or text == "":
        return None
    try:
        when = text if isinstance(text, datetime) else datetime.fromisoformat(text)
        when = (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadSchedule(f"{text!r} is no date and time ({error})") from error
    if when.year > LAST_YEAR:
        raise BadSchedule(f"{text!r} is too far away to be meant")
    return when


_collecting: ContextVar[list[Captured] | None] = ContextVar("guard_collecting", default=None)
_everything: ContextVar[str | None] = ContextVar("guard_everything", default=None)


@contextlib.contextmanager
def collecting() -> Iterator[list[Captured]]:
    """Inside, every publish is captured into the list; nothing is written and nothing sent."""
    kept: list[Captured] = []
    token = _collecting.set(kept)
    try:
        yield kept
    finally:
        _collecting.reset(token)


@contextlib.contextmanager
def capture_everything(using: str | None = None) -> Iterator[None]:
    """Inside, messages of unguarded tasks are captured too, whatever ``outbox.capture`` says.

    They are written on the database ``using``, which should be that of the open transaction.
    """
    token = _everything.set(using or guard_settings().using)
    try:
        yield
    finally:
        _everything.reset(token)


def collection() -> list[Captured] | None:
    """The list that :func:`collecting` fills here, or None."""
    return _collecting.get()


def capturing_everything() -> str | None:
    """The database on which :func:`capture_everything` keeps messages here, or None."""
    return _everything.get()
