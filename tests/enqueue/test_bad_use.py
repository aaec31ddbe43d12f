"""Whatever is wrong with a call or a declaration is told at once, by type, with nothing written."""

import collections
import datetime as dt
import decimal
import enum
import fractions
import math
import types
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import time_machine
from celery import chain, chord, group, signature
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.http import QueryDict
from django.urls import reverse_lazy
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy, override
from kombu.serialization import loads

from celery_guard import UNKEYED, guarded_task
from celery_guard.conf import read_settings
from celery_guard.errors import (
    BadSchedule,
    EnqueueError,
    GuardError,
    MissingKey,
    NotSerializable,
    PayloadTooLarge,
)
from tests.enqueue.rows import celery_settings, counts, envelope_of, jobs, message_of
from tests.enqueue.tasks import app, bound, form_task, keyed, plain, unkeyed
from tests.project.shop.models import Mark, Order

pytestmark = [pytest.mark.bar, pytest.mark.django_db]

AWARE = dt.datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def _nothing_is_left_by_a_refusal(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test that is named after a refusal ends with empty tables."""
    yield
    if "refused" in request.node.name:
        assert counts() == (0, 0)


class Colour(enum.Enum):
    """An enum."""

    RED = "red"


class Size(enum.IntEnum):
    """An enum that is a number."""

    SMALL = 1


class Word(str):
    """Text of a kind of its own."""

    __slots__ = ()


Point = collections.namedtuple("Point", "x y")


KEPT = [
    AWARE,
    AWARE.astimezone(dt.timezone(dt.timedelta(hours=-9, minutes=-30))),
    AWARE.replace(tzinfo=None),
    AWARE.date(),
    AWARE.time(),
    AWARE.timetz(),
    decimal.Decimal("1.10"),
    decimal.Decimal("NaN"),
    uuid.UUID(int=7),
    b"bytes",
    b"\x00\xff",
    2**70,
    -(2**70),
    0.1,
    "",
    "ä ☃ \x00",
    "half \ud800 character",
    True,
    None,
    [],
    [1, [2, [AWARE]]],
    {"a": {"b": [decimal.Decimal("2.50")]}},
]

REFUSED = [
    dt.timedelta(seconds=5),
    Colour.RED,
    Size.SMALL,
    {1, 2},
    frozenset({1}),
    (1, 2),
    [1, (2, 3)],
    Point(1, 2),
    {1: "a"},
    {"a": {2: "b"}},
    {None: 1},
    math.nan,
    -math.inf,
    [math.inf],
    Word("w"),
    collections.OrderedDict(a=1),
    QueryDict("a=1&a=2"),
    fractions.Fraction(1, 3),
    {"__type__": "uuid", "__value__": 3},
    object(),
    ValueError("v"),
    types.SimpleNamespace(),
    iter([1]),
    bytearray(b"b"),
]

LAZY = [
    gettext_lazy("Yes"),
    reverse_lazy("admin:index"),
    mark_safe("<b>"),
    SimpleLazyObject(lambda: User(username="u")),
    SimpleLazyObject(lambda: "text"),
    User(username="u"),
    Order(),
    Order.objects.all(),
]


def _arrived(place: int = 0) -> Any:
    (job,) = jobs()
    envelope = envelope_of(job)
    body = bytes(message_of(job).body)
    args, _, _ = loads(body, envelope.content_type, envelope.content_encoding, accept=None)
    return args[place]


@pytest.mark.parametrize("value", KEPT, ids=repr)
def test_what_is_taken_arrives_as_it_was(value: object) -> None:
    """PB-06: equal value and equal type in the worker, however deep it lies."""
    unkeyed.delay([value, {"in": value}])
    arrived, inner = _arrived()
    for found in (arrived, inner["in"]):
        assert type(found) is type(value)
        assert found == value or str(found) == str(value) == "NaN"


@pytest.mark.parametrize("value", [*REFUSED, *LAZY], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("deep", [False, True])
def test_what_would_change_on_the_way_is_refused(value: object, deep: bool) -> None:
    """PB-06, PB-07: no silent str, list, dict or other language: an error that names the place."""
    with pytest.raises(NotSerializable, match=r"args\[0\]|cannot be encoded"):
        unkeyed.delay([{"in": value}] if deep else value)


@pytest.mark.parametrize("value", [(1, 2), {1}, math.nan, Colour.RED, gettext_lazy("Yes")])
def test_keywords_options_and_eager_calls_are_refused_alike(value: object) -> None:
    """PB-06: by every way to call, also where nothing is encoded at all."""
    for ask in (
        lambda: unkeyed.delay(value=value),
        lambda: unkeyed.apply_async(kwargs={"value": value}, countdown=5),
        lambda: unkeyed.s(value).delay(),
        lambda: app().send_task(unkeyed.name, (value,)),
        lambda: group(unkeyed.s(value), unkeyed.s(1)).delay(),
        lambda: chain(unkeyed.si(value), unkeyed.si(1)).delay(),
    ):
        with pytest.raises(NotSerializable, match=unkeyed.name):
            ask()


def test_eager_calls_are_refused_alike() -> None:
    """PB-06, TH-01: what fails in production fails in a test that runs tasks at once."""
    with celery_settings(app(), task_always_eager=True), pytest.raises(NotSerializable):
        unkeyed.delay((1, 2))


def test_later_steps_of_a_canvas_are_refused_at_the_call() -> None:
    """PB-06: a chain's second step, a link, an errback, a chord's body: told before they are due."""
    for canvas in (
        chain(unkeyed.si(1), unkeyed.si((1, 2))),
        chain(unkeyed.si(1), group(unkeyed.si(1), unkeyed.si((1, 2)))),
        unkeyed.s(1).on_error(unkeyed.si((1, 2))),
        unkeyed.s(1).set(link=[unkeyed.si((1, 2))]),
        chord([unkeyed.s(1), unkeyed.s((1, 2))], unkeyed.si(1)),
        chord([unkeyed.s(1), unkeyed.s(2)], unkeyed.si((1, 2))),
        chord([unkeyed.s(1), chain(unkeyed.s(2), unkeyed.si((1, 2)))], unkeyed.si(3)),
    ):
        with pytest.raises(NotSerializable):
            canvas.apply_async()


def test_a_step_that_is_not_guarded_is_celerys_own_business() -> None:
    """An unguarded task's arguments are changed by Celery as they always were."""
    chain(unkeyed.si(1), plain.si((1, 2))).delay()
    assert counts() == (1, 1)


def test_a_lazy_text_can_be_made_definite() -> None:
    """PB-07: ``str(…)`` at the call keeps the language of the request."""
    with override("de"):
        unkeyed.delay(str(gettext_lazy("Yes")))
    assert _arrived() == "Ja"


def test_a_header_that_cannot_be_stored_is_refused() -> None:
    """Not only arguments travel."""
    with pytest.raises(NotSerializable, match="headers"):
        unkeyed.apply_async((1,), headers={"x": object()})


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), (("a", "b", "c"), {"value": 1}), (("a",), {"name": "b"})],
)
def test_arguments_that_do_not_fit_are_refused(args: Any, kwargs: Any) -> None:
    """A call that the body could never take is Python's own TypeError, at the call."""
    for ask in (
        lambda: keyed.apply_async(args, kwargs),
        lambda: keyed.apply_async(args, kwargs, countdown=5),
        lambda: app().send_task(keyed.name, args, kwargs),
        lambda: chord([keyed.s(*args, **kwargs)], unkeyed.si()).delay(),
    ):
        with pytest.raises(TypeError):
            ask()


def test_missing_and_surplus_arguments_are_refused() -> None:
    """The same for a task whose signature is closed."""
    for args, kwargs in (((), {}), (("a",), {}), (("a", 1, 2), {}), (("a",), {"shopp": 1})):
        with pytest.raises(TypeError):
            bound.apply_async(args, kwargs)
    with pytest.raises(TypeError):
        unkeyed.apply_async("text")


def test_a_key_without_a_value_is_refused_before_anything_is_written() -> None:
    """The transaction goes on, with what else it wrote."""
    with transaction.atomic():
        Mark.objects.create(name="before")
        with pytest.raises(MissingKey, match="name"):
            keyed.delay(None)
        with pytest.raises(MissingKey):
            chord([keyed.s(None), keyed.s("a")], unkeyed.si()).delay()
    assert Mark.objects.exists()


def test_an_oversized_payload_is_refused(settings: Any) -> None:
    """The limit is on the encoded body, and the error names both sizes and the setting."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "outbox": {"payload_limit": 10_000}}
    with pytest.raises(PayloadTooLarge, match=r"10,0\d\d bytes.*10,000.*outbox\.payload_limit"):
        unkeyed.delay("x" * 10_000)
    with pytest.raises(PayloadTooLarge):
        group(unkeyed.s("x"), unkeyed.s("x" * 10_000)).delay()
    with pytest.raises(PayloadTooLarge, match="start_canvas"):
        chord([unkeyed.s("x" * 6_000)] * 2, unkeyed.si()).delay()


NO_TIME = [
    {"countdown": math.nan},
    {"countdown": math.inf},
    {"countdown": "5"},
    {"countdown": True},
    {"countdown": 10**12},
    {"eta": "tomorrow"},
    {"eta": 5},
    {"eta": dt.datetime(9999, 12, 31, 23, tzinfo=dt.UTC)},
    {"eta": dt.date(2031, 1, 1)},
    {"expires": math.nan},
    {"expires": "soon"},
    {"expires": dt.timedelta(hours=1)},
    {"expires": dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5)))},
]


@pytest.mark.parametrize("times", NO_TIME, ids=str)
def test_a_time_that_is_none_is_refused(times: Any) -> None:
    """RV-07: NaN, infinity, text that is no time, and times beyond any calendar."""
    with pytest.raises(BadSchedule, match=next(iter(times))):
        unkeyed.apply_async((1,), **times)


def test_every_wrong_time_is_named_and_refused() -> None:
    """One error for all of them."""
    with pytest.raises(BadSchedule, match=r"countdown nan.*eta 'x'.*expires 'y'"):
        unkeyed.apply_async((1,), countdown=math.nan, eta="x", expires="y")


def test_a_wrong_time_by_name_is_refused() -> None:
    """``send_task`` knows no task object; its times are looked at all the same."""
    with pytest.raises(BadSchedule):
        app().send_task(unkeyed.name, (1,), eta="tomorrow")


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({"countdown": 30 * 86400}, 30 * 86400),
        ({"countdown": 0}, 0),
        ({"countdown": -5}, 0),
        ({"countdown": 1.5}, 1.5),
        ({"eta": dt.datetime(2001, 1, 1, tzinfo=dt.UTC)}, 0),
        ({"eta": dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5)))}, None),
        ({"countdown": 0, "eta": dt.datetime(2001, 1, 1, tzinfo=dt.UTC)}, 0),
    ],
    ids=str,
)
def test_a_time_in_the_past_is_now(options: Any, seconds: float | None) -> None:
    """RV-07: due by the database's clock; what lies in the past does not jump the line."""
    if seconds is None:
        with pytest.raises(BadSchedule):
            unkeyed.apply_async((1,), **options)
        return
    unkeyed.apply_async((1,), **options)
    (job,) = jobs()
    assert job.due_at is not None
    assert abs((job.due_at - job.created_at).total_seconds() - seconds) < 0.1


@pytest.mark.parametrize(
    "eta",
    [AWARE, AWARE.replace(tzinfo=None), AWARE.isoformat(), "2031-05-06T09:08:09.123456+02:00"],
    ids=str,
)
def test_a_time_is_one_instant(eta: Any) -> None:
    """RV-07: aware, naive (UTC, as in Celery) or text: one UTC instant on the row."""
    unkeyed.apply_async((1,), eta=eta, expires=eta)
    (job,) = jobs()
    assert (job.due_at, job.first_due_at, job.expires_at) == (AWARE, AWARE, AWARE)
    assert job.reason == "eta"


def test_a_countdown_of_nothing_gives_way_to_a_time() -> None:
    """As in Celery, where zero is no countdown."""
    unkeyed.apply_async((1,), countdown=0, eta=AWARE)
    assert jobs()[0].due_at == AWARE


@pytest.mark.parametrize("days", [-400, 400])
def test_seconds_count_on_the_databases_clock(days: int) -> None:
    """A web server whose clock is wrong makes no job early, late or stillborn."""
    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(days=days)):
        unkeyed.apply_async((1,), countdown=100, expires=200)
    (job,) = jobs()
    assert job.due_at is not None
    assert job.expires_at is not None
    assert abs((job.due_at - job.created_at).total_seconds() - 100) < 0.1
    assert abs((job.expires_at - job.created_at).total_seconds() - 200) < 0.1


DECLARATIONS = [
    ({}, "needs key="),
    ({"key": None}, "needs key="),
    ({"key": "fixed"}, "names no argument"),
    ({"key": "{orderid}"}, "did you mean 'order_id'"),
    ({"key": "{nothing}"}, "known: order_id, shop"),
    ({"key": "{order_id"}, "is no template"),
    ({"key": "{}"}, "is no template"),
    ({"key": "{order_id.pk}"}, "is no template"),
    ({"key": "{order_id:>5}"}, "without a format"),
    ({"key": "{order_id!r}"}, "without a format"),
    ({"key": 7}, "must be a template or a callable"),
    ({"key": UNKEYED, "tenant": "{shopp}"}, "did you mean 'shop'"),
    ({"key": UNKEYED, "lane": "hihg"}, "did you mean 'high'"),
    ({"key": UNKEYED, "using": "otter"}, "did you mean 'other'"),
    ({"key": UNKEYED, "on_failed": "ignore"}, "on_failed must be"),
    ({"key": UNKEYED, "lease": 0}, "lease must be above 0"),
    ({"key": UNKEYED, "failures": "x"}, "failures must be above 0"),
    ({"key": UNKEYED, "transient": ValueError}, "must be a tuple"),
    ({"key": UNKEYED, "permanent": (7,)}, "must hold exception classes"),
    ({"key": UNKEYED, "permanant": (ValueError,)}, "did you mean 'permanent'"),
    ({"key": UNKEYED, "name": "n" * 256}, "the ledger keeps 255"),
]


@pytest.mark.parametrize(("options", "told"), DECLARATIONS, ids=lambda v: str(v)[:40])
def test_a_wrong_declaration_is_told_where_it_stands(options: Any, told: str) -> None:
    """At definition: before a worker or a request ever meets the task."""

    def body(order_id: int, shop: int = 0) -> None:
        """Never runs."""

    with pytest.raises(ImproperlyConfigured, match=told):
        guarded_task(**options)(body)


def test_every_fault_of_a_declaration_is_named_at_once() -> None:
    """One error for all of them, with the task's name."""
    with pytest.raises(ImproperlyConfigured, match=r"body: .*orderid.*hihg.*lease"):

        @guarded_task(key="{orderid}", lane="hihg", lease=-1)
        def body(order_id: int) -> None:
            """Never runs."""


def test_celerys_own_options_and_the_sites_are_left_alone() -> None:
    """Options that are nobody's misspelling pass through to Celery, as ever."""

    @guarded_task(key=UNKEYED, name="tests.enqueue.own", rate_limit="1/s", colour="red")
    def body() -> None:
        """Never runs."""

    task = app().tasks["tests.enqueue.own"]
    assert (task.rate_limit, task.colour) == ("1/s", "red")


def test_all_faults_of_the_settings_are_in_one_message(settings: Any) -> None:
    """Wrong names with the nearest right one, wrong types, wrong values: all at once."""
    settings.CELERY_GUARD = {
        "usig": "default",
        "outbox": {"capture": "al", "payload_limit": 0},
        "relay": {"pol": 1, "batch": "many"},
        "lanes": {"high": {"objektive": 3}},
        "run": 7,
    }
    _, faults = read_settings(settings.CELERY_GUARD)
    assert len(faults) == 7
    with pytest.raises(ImproperlyConfigured) as told:
        unkeyed.delay(1)
    for hint in ("'using'", "'all'", "above 0", "'poll'", "whole number", "'objective'", "a dict"):
        assert hint in str(told.value)


def test_every_refusal_is_of_one_family() -> None:
    """A caller may catch one class: nothing was written."""
    assert issubclass(EnqueueError, GuardError)
    for kind in (BadSchedule, MissingKey, NotSerializable, PayloadTooLarge):
        assert issubclass(kind, EnqueueError)


def test_an_old_message_protocol_is_refused() -> None:
    """Celery's first protocol has no headers, so a job could not be told from a message."""
    with (
        celery_settings(app(), task_protocol=1),
        pytest.raises(ImproperlyConfigured, match="task_protocol"),
    ):
        unkeyed.apply_async((1,), countdown=1)


def test_a_canvas_that_came_through_json_is_looked_at_too() -> None:
    """Signatures that are plain dicts are as good as any."""
    canvas = {**chord([unkeyed.s(1)], unkeyed.si())}
    signature({**canvas}, app=app()).delay()
    assert counts() == (1, 1)
    assert form_task("add").s(1).delay() is not None


def test_a_dependency_that_nobody_declared_says_where() -> None:
    """With the whole name of the task, and the setting that is missing."""

    def charge(order_id: int) -> None: ...

    with pytest.raises(ImproperlyConfigured) as told:
        guarded_task(key="charge:{order_id}", dependency="payments")(charge)
    assert f"task {__name__}." in str(told.value)
    assert 'CELERY_GUARD["dependencies"]' in str(told.value)
