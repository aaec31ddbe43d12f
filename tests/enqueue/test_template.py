"""The short way to a message makes what Celery makes, byte for byte, or steps aside."""

import decimal
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from celery import group, signals
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_guard.enqueue.template import placed, template_of
from celery_guard.jobs.adding import NewJob
from celery_guard.jobs.models import Job
from celery_guard.outbox.capture import Captured, collecting
from celery_guard.outbox.store import insert_many
from tests.enqueue.rows import headers_of, jobs
from tests.enqueue.tasks import app, bound, high, keyed, silent, unkeyed

pytestmark = pytest.mark.django_db

TEXT = st.text(max_size=130) | st.text(alphabet="<guard aikor hole>'\"\\\x00\ud800é☃", max_size=40)
LEAVES = (
    TEXT
    | st.integers()
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.datetimes()
    | st.binary(max_size=20)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def by_celery(task: Any, args: Any, kwargs: Any, task_id: str) -> Captured:
    """The message of the call as Celery builds it."""
    with collecting() as kept:
        task.apply_async(args, kwargs, task_id=task_id)
    return kept[0]


def by_template(task: Any, args: Any, kwargs: Any) -> Captured:
    """The message of the call by the short way."""
    template = template_of(task._get_current_object(), app())
    assert template is not None
    return template.fill(app(), args, kwargs)


@pytest.mark.parametrize("task", [keyed, high, unkeyed, silent, bound], ids=lambda t: t.name)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(args=st.lists(VALUES, max_size=3), kwargs=st.dictionaries(TEXT, VALUES, max_size=3))
def test_the_short_way_is_celerys_own(task: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Body, envelope, queue and marks are equal for whatever can be encoded."""
    short = by_template(task, tuple(args), kwargs)
    with collecting() as kept:
        app().send_task(
            task.name,
            tuple(args),
            kwargs,
            task_id=short.task_id,
            task_type=task._get_current_object(),
            **{"ignore_result": task.ignore_result, **task._get_exec_options()},
        )
    assert kept[0] == short


@pytest.mark.parametrize(
    "value", [1, "a", None, decimal.Decimal("1.10"), uuid.UUID(int=1), ["x", {"y": 2}], "☃" * 200]
)
def test_delay_takes_the_short_way_and_apply_async_the_long_one(value: object) -> None:
    """Both end in the same message."""
    short = by_template(keyed, ("a", value), {})
    assert by_celery(keyed, ("a", value), {}, short.task_id) == short


PLACES: list[dict[str, Any]] = [
    {"group_id": "g", "group_index": 3, "root_id": "r", "reply_to": "me", "add_to_parent": False},
    {"group_id": 'a "quoted" % ☃', "group_index": 0, "root_id": "r"},
    {"root_id": "r"},
    {"add_to_parent": False, "chord": None},
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("task", [keyed, high, silent], ids=lambda t: t.name)
def test_the_members_of_a_group_take_it_too(task: Any, place: dict[str, Any]) -> None:
    """Where a call stands in a canvas is filled in; whoever waits for a member is known."""
    task_id = str(uuid.uuid4())
    assert placed(task_id, place)
    template = template_of(task._get_current_object(), app())
    assert template is not None
    short = template.fill(app(), ("a",), {}, task_id, place)
    with collecting() as kept:
        task.apply_async(("a",), {}, task_id=task_id, **place)
    assert kept == [short]


@pytest.mark.mariadb
@pytest.mark.parametrize("place", [{}, *PLACES])
@pytest.mark.parametrize("task_id", [None, str(uuid.UUID(int=7)), 'odd "id" %s %1$s \\ ☃'])
def test_what_is_written_in_bulk_is_filled_in_the_same(
    place: dict[str, Any], task_id: str | None
) -> None:
    """The database puts the values into the form: byte for byte what one call alone writes."""
    pairs = []
    for value in ("a", '100 % of "%s" and %2$s', "\x00☃\ud800", 5, None, ["%"]):
        for task in (keyed, high):
            template = template_of(task._get_current_object(), app())
            assert template is not None
            short = template.fill(app(), (value,), {"kind": value}, task_id, place)
            public_id = short.public_id or uuid.uuid4()
            pairs.append((NewJob(task=task.name, lane="high", public_id=public_id), short))
    found = insert_many("default", pairs)
    assert len(found) == len(pairs)
    for new, short in pairs:
        message = Job.objects.get(pk=found[new.public_id]).message
        assert message is not None
        assert message.envelope == short.envelope_text
        assert bytes(message.body) == short.body


@pytest.mark.parametrize(
    ("task_id", "options"),
    [
        (uuid.UUID(int=1), {}),
        ("", {}),
        ("i", {"countdown": 1}),
        ("i", {"parent_id": "p"}),
        ("i", {"group_id": "g", "chord": {"task": "body"}}),
        ("i", {"group_id": None}),
        ("i", {"group_index": True}),
        ("i", {"link": keyed.s("b")}),
        ("i", {"stamped_headers": ["a"], "a": 1}),
    ],
)
def test_what_else_a_call_asks_for_is_celerys(task_id: Any, options: dict[str, Any]) -> None:
    """Anything that the holes have no word for."""
    assert not placed(task_id, options)


def test_what_a_task_says_later_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery asks the task at every call whether its result is kept and when it expires."""
    task = unkeyed._get_current_object()
    assert not by_template(unkeyed, (1,), {}).ignore_result
    with monkeypatch.context() as patched:
        patched.setattr(task, "ignore_result", True)
        assert by_template(unkeyed, (1,), {}).ignore_result
        patched.setattr(task, "expires", 60)
        assert template_of(task, app()) is None
    assert not by_template(unkeyed, (1,), {}).ignore_result


def test_a_group_is_made_by_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's calls never reach Celery's own sender, and their messages say so all the same."""
    for task in (keyed, unkeyed, high):
        # Celery's own sender makes the templates.
        assert template_of(task._get_current_object(), app()) is not None
    monkeypatch.setattr(app().amqp, "send_task_message", None)
    result = group(keyed.s("a"), unkeyed.s(1), high.s("b")).apply_async()
    told = [headers_of(job) for job in jobs()]
    assert [headers["id"] for headers in told] == [child.id for child in result.results]
    assert {headers["group"] for headers in told} == {result.id}
    assert [headers["group_index"] for headers in told] == [0, 1, 2]
    assert all(job.awaited for job in jobs())


@pytest.fixture
def receiver() -> Iterator[list[str]]:
    """A receiver of Celery's publish signal, as tracing libraries have."""
    heard: list[str] = []

    def hear(sender: str, headers: dict[str, Any], **_: Any) -> None:
        headers["traced"] = "yes"
        heard.append(sender)

    signals.before_task_publish.connect(hear, weak=False, dispatch_uid="hear")
    yield heard
    signals.before_task_publish.disconnect(dispatch_uid="hear")


def test_with_a_receiver_celery_builds(receiver: list[str]) -> None:
    """A signal's receiver may change the message, so it gets it, once."""
    assert template_of(keyed._get_current_object(), app()) is None
    handle = keyed.delay("a")
    assert (receiver, handle.job is not None) == ([keyed.name], True)


def test_a_receiver_that_asks_for_work_does_not_confuse_the_call() -> None:
    """A call made while another's message is built has times and an answer of its own."""
    asked: list[Any] = []

    def ask(sender: str, **_: Any) -> None:
        if sender == keyed.name:
            app().send_task(unkeyed.name, ("inner",))
            asked.append(high.apply_async(("inner",)))

    signals.before_task_publish.connect(ask, weak=False, dispatch_uid="ask")
    try:
        outer = keyed.apply_async(("outer",), countdown=100)
    finally:
        signals.before_task_publish.disconnect(dispatch_uid="ask")
    assert (outer.job.task, outer.job.reason) == (keyed.name, "eta")
    assert [(handle.job.task, handle.job.reason) for handle in asked] == [(high.name, "new")]
    by_name = Job.objects.get(task=unkeyed.name)
    assert (by_name.due_at - by_name.created_at).total_seconds() < 1
