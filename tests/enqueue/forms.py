"""Every way in which Celery lets a task be asked for, as data.

The same functions run in this process, where the tasks are guarded, and in a process that has
never heard of the guard. They import neither Django nor the guard.
"""

import datetime as dt
import decimal
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from celery import chain, chord, chunks, group, signature, xmap, xstarmap
from celery.beat import ScheduleEntry, Scheduler
from celery.schedules import schedule
from kombu import Exchange, Queue

PLACE = "tests.enqueue.tasks"
LATER = dt.datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC)
BERLIN = dt.datetime(2031, 5, 6, 7, 8, tzinfo=dt.timezone(dt.timedelta(hours=2)))
PINNED = "4a9b8f0e-1c2d-4e3f-8a5b-6c7d8e9f0a1b"


@dataclass(frozen=True, slots=True)
class Form:
    """One way to ask: ``ask(t)`` does it; ``t`` holds the app and its tasks.

    ``messages`` is how many messages a direct publish sends at once; ``frozen`` says that the
    guard sends one canvas to a worker instead, which then sends these messages.
    """

    name: str
    ask: Callable[[Any], Any]
    messages: int = 1
    frozen: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


def topic_queue(prefix: str) -> Queue:
    """A queue behind a topic exchange, which both processes declare."""
    name = f"{prefix}topic"
    return Queue(name, Exchange(name, type="topic"), routing_key="order.#")


def task_bodies() -> dict[str, Callable[..., Any]]:
    """The bodies by name; one process guards them, the other doesn't."""

    def add(x: int = 0, y: int = 0) -> int:
        return x + y

    def total(numbers: list[int]) -> int:
        return sum(numbers)

    def note(*args: Any, **kwargs: Any) -> str:
        return repr((args, kwargs))

    return {"add": add, "total": total, "note": note}


def _options(**options: Any) -> Callable[[Any], Any]:
    return lambda t: t.add.apply_async((1, 2), task_id=PINNED, **options)


def _explicit_producer(t: Any) -> Any:
    with t.app.producer_pool.acquire(block=True) as producer:
        return t.add.apply_async((1, 2), task_id=PINNED, producer=producer)


def _explicit_connection(t: Any) -> Any:
    with t.app.connection_for_write() as connection:
        return t.add.apply_async((1, 2), task_id=PINNED, connection=connection)


def _beat(t: Any) -> Any:
    scheduler = Scheduler(app=t.app, lazy=True)
    entry = ScheduleEntry(
        name="nightly",
        task=t.add.name,
        schedule=schedule(60),
        args=(1, 2),
        options={"task_id": PINNED, "expires": 600, "priority": 6},
        app=t.app,
    )
    with scheduler.connection:
        return scheduler.apply_entry(entry, producer=scheduler.producer)


def _full(t: Any) -> Any:
    return t.note.apply_async(
        ("ä", 1.5, None, True, [1, {"a": "b"}]),
        {"when": LATER, "price": decimal.Decimal("1.10"), "raw": b"\x00\xff"},
        task_id=PINNED,
        eta=LATER,
        expires=LATER + dt.timedelta(days=1),
        priority=3,
        headers={"tenant": "a", "at": LATER, "price": decimal.Decimal("2.50")},
        shadow="nightly note",
        time_limit=60,
        soft_time_limit=30,
        link=t.add.s(1).set(task_id=PINNED),
        link_error=[t.note.si("failed")],
        ignore_result=True,
        retry=False,
        reply_to="somewhere",
        argsrepr="<hidden>",
        kwargsrepr="<hidden>",
        queue=t.prefix + "low",
    )


def _stamped(t: Any) -> Any:
    stamped = t.add.s(1, 2)
    stamped.stamp(shop="one")
    return stamped.apply_async(task_id=PINNED)


FORMS = [
    Form("delay", lambda t: t.add.delay(1, 2)),
    Form("delay with keywords", lambda t: t.add.delay(x=1, y=2)),
    Form("delay without arguments", lambda t: t.add.delay()),
    Form("call of a signature", lambda t: t.add.s(1, 2).delay()),
    Form("apply_async", _options()),
    Form("apply_async with all options", _full),
    Form("countdown", _options(countdown=90)),
    Form("eta", _options(eta=LATER)),
    Form("eta elsewhere", _options(eta=BERLIN)),
    Form("eta without zone", _options(eta=LATER.replace(tzinfo=None))),
    Form("eta as text", _options(eta=LATER.isoformat())),
    Form("expires in seconds", _options(expires=3600)),
    Form("expires at a time", _options(expires=LATER)),
    Form("expires as text", _options(expires=LATER.isoformat())),
    Form("priority", _options(priority=9)),
    Form("headers", _options(headers={"at": LATER, "price": decimal.Decimal("2.5"), "n": 1})),
    Form("shadow", _options(shadow="other name")),
    Form("time limits", _options(time_limit=20, soft_time_limit=10)),
    Form("link", lambda t: t.add.apply_async((1, 2), task_id=PINNED, link=t.add.s(3))),
    Form(
        "links",
        lambda t: t.add.apply_async((1, 2), link=[t.add.s(3), t.note.si("x")]),
    ),
    Form("link_error", lambda t: t.add.apply_async((1, 2), link_error=t.note.s())),
    Form("ignore_result", _options(ignore_result=True)),
    Form("own task id", lambda t: t.add.apply_async((1, 2), task_id="import of 1 May")),
    Form("explicit producer", _explicit_producer),
    Form("explicit connection", _explicit_connection),
    Form("another queue", lambda t: t.add.apply_async((1, 2), queue=t.prefix + "low")),
    Form(
        "topic exchange",
        lambda t: t.add.apply_async((1, 2), queue=t.prefix + "topic", routing_key="order.new"),
    ),
    Form(
        "exchange and routing key",
        lambda t: t.add.apply_async(
            (1, 2), exchange=t.prefix + "topic", exchange_type="topic", routing_key="order.paid"
        ),
    ),
    Form("zlib", _options(compression="zlib")),
    Form("gzip", _options(compression="gzip")),
    Form("transient", _options(delivery_mode=1)),
    Form("retry policy", _options(retry=True, retry_policy={"max_retries": 1})),
    Form("group id", _options(group_id="g", group_index=2)),
    Form("stamps", _stamped),
    Form("send_task", lambda t: t.app.send_task(t.add.name, (1, 2), task_id=PINNED)),
    Form(
        "send_task with options",
        lambda t: t.app.send_task(
            t.add.name, (1,), {"y": 2}, countdown=30, priority=3, queue=t.prefix + "low"
        ),
    ),
    Form("signature", lambda t: t.add.signature((1, 2), countdown=5).apply_async()),
    Form("signature by name", lambda t: signature(t.add.name, (1, 2), app=t.app).apply_async()),
    Form("signature from JSON", lambda t: signature(dict(t.add.s(1, 2)), app=t.app).delay()),
    Form("partial", lambda t: t.add.s(2).apply_async((1,), priority=6)),
    Form("partial keywords", lambda t: t.add.s(x=2).apply_async(kwargs={"y": 1})),
    Form("immutable", lambda t: t.add.si(1, 2).apply_async((9,))),
    Form("cloned", lambda t: t.add.s(1).clone((2,), task_id=PINNED).apply_async()),
    Form("chain", lambda t: chain(t.add.s(1, 2), t.add.s(3), t.add.s(4)).apply_async()),
    Form("chain by pipe", lambda t: (t.add.s(1, 2) | t.add.s(3)).delay()),
    Form(
        "chain with options",
        lambda t: chain(t.add.s(1, 2), t.add.s(3)).apply_async(
            countdown=5, link=t.note.s(), link_error=t.note.s("chain")
        ),
    ),
    Form("chain that ends in a group", lambda t: (t.add.s(1, 2) | _two(t, partial=True)).delay()),
    Form(
        "chain that ends in a chord",
        lambda t: (t.add.s(1, 2) | chord([t.add.s(3), t.add.s(4)], t.total.s())).delay(),
    ),
    Form("group", lambda t: _two(t).apply_async(), messages=2),
    Form(
        "group with options",
        lambda t: _two(t).apply_async(countdown=5, priority=3),
        messages=2,
    ),
    Form("group of a generator", lambda t: group(t.add.s(n, n) for n in range(3))(), messages=3),
    Form("group in a group", lambda t: group(t.add.s(0, 0), _two(t)).delay(), messages=3),
    Form(
        "chains in a group",
        lambda t: group(t.add.s(1, 2) | t.add.s(3), t.add.s(4, 5) | t.add.s(6)).delay(),
        messages=2,
    ),
    Form("map", lambda t: t.total.map([[1, 2], [3]]).apply_async()),
    Form("starmap", lambda t: t.add.starmap([(1, 2), (3, 4)]).apply_async(priority=3)),
    Form("chunks", lambda t: t.add.chunks([(1, 2), (3, 4), (5, 6)], 2).apply_async(), messages=2),
    Form("map by class", lambda t: xmap(t.total.s(), [[1]], app=t.app).delay()),
    Form("starmap by class", lambda t: xstarmap(t.add.s(), [[1, 2]], app=t.app).delay()),
    Form("chunks by class", lambda t: chunks(t.add.s(), [[1, 2]], 1, app=t.app)(), messages=1),
    Form("beat", _beat),
    Form(
        "chord",
        lambda t: chord([t.add.s(1, 2), t.add.s(3, 4)], t.total.s()).apply_async(),
        messages=2,
        frozen=True,
    ),
    Form(
        "chord with options",
        lambda t: chord([t.add.s(1, 2), t.add.s(3, 4)], t.total.s()).apply_async(
            countdown=5, priority=3
        ),
        messages=2,
        frozen=True,
    ),
    Form(
        "chord by call",
        lambda t: chord([t.add.s(n, n) for n in range(2)])(t.total.s()),
        messages=2,
        frozen=True,
    ),
    Form(
        "group and a callback",
        lambda t: (_two(t) | t.total.s() | t.add.s(9)).delay(),
        messages=2,
        frozen=True,
    ),
    Form(
        "chord in a group",
        lambda t: group(t.add.s(0, 0), chord([t.add.s(1, 2), t.add.s(3, 4)], t.total.s())).delay(),
        messages=3,
        frozen=True,
    ),
    Form(
        "chord in a chord",
        lambda t: chord([_two(t) | t.total.s(), t.add.s(5, 6)], t.total.s()).delay(),
        messages=3,
        frozen=True,
    ),
]


def _two(t: Any, *, partial: bool = False) -> Any:
    return group(t.add.s(5), t.add.s(6)) if partial else group(t.add.s(1, 2), t.add.s(3, 4))


def tasks_of(app: Any, prefix: str) -> SimpleNamespace:
    """What the forms work with: the app, its tasks by short name, the queues' prefix."""
    tasks = {name: app.tasks[f"{PLACE}.{name}"] for name in task_bodies()}
    return SimpleNamespace(app=app, prefix=prefix, **tasks)


def opened(body: bytes) -> bytes:
    """A body that may be compressed, as its plain bytes."""
    try:
        return zlib.decompress(body, wbits=zlib.MAX_WBITS | 32)
    except zlib.error:
        return body
