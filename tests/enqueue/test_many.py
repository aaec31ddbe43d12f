"""``enqueue_many`` does for each signature what a call of its own does."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Signature, group, signals
from django.db import transaction

from celery_guard import enqueue_many
from celery_guard.enqueue import many
from celery_guard.enqueue.steering.reading import forget
from celery_guard.enqueue.steering.turning import turn_on
from celery_guard.errors import AdmissionRefused, MissingKey, NotSerializable, WrongDatabase
from tests.enqueue.rows import celery_settings, counts, envelope_of, jobs, keys, message_of
from tests.enqueue.tasks import app, bound, elsewhere, keyed, plain

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tasks of the signatures that went the short way."""
    went: list[Any] = []
    enqueue = many.Way.enqueue

    def note(way: Any, args: Any, kwargs: Any) -> Any:
        went.append(way.task.name)
        return enqueue(way, args, kwargs)

    monkeypatch.setattr(many.Way, "enqueue", note)
    return went


def row(job: Any) -> dict[str, Any]:
    """What a job and its message say, but for what is another in every call."""
    envelope = envelope_of(job)
    names = ("task", "key", "fingerprint", "lane", "tenant", "reason", "awaited", "coalesce_key")
    headers = {n: v for n, v in envelope.headers.items() if n not in ("id", "root_id")}
    return {n: getattr(job, n) for n in names} | {"headers": headers, "body": message_of(job).body}


@pytest.mark.parametrize("in_transaction", [True, False])
def test_the_rows_are_those_of_single_calls(short: list[Any], in_transaction: bool) -> None:
    """Whatever was asked once for all of them."""
    if in_transaction:
        with transaction.atomic():
            handles = enqueue_many([bound.s("a", 1), bound.s("b", shop=2), keyed.s("c", [1.5])])
    else:
        handles = enqueue_many([bound.s("a", 1), bound.s("b", shop=2), keyed.s("c", [1.5])])
    assert short == [bound.name, bound.name, keyed.name]
    at_once = [row(job) for job in jobs()]
    assert [handle.job.key for handle in handles] == keys()
    for job in jobs():
        job.delete()
    for call in (bound.s("a", 1), bound.s("b", shop=2), keyed.s("c", [1.5])):
        call.apply_async()
    assert at_once == [row(job) for job in jobs()]


@pytest.mark.parametrize(
    ("signature", "error"),
    [(keyed.s(None), MissingKey), (keyed.s({1}), NotSerializable), (keyed.s(), TypeError)],
)
def test_a_fault_is_told_at_its_signature(signature: Any, error: type[Exception]) -> None:
    """Those after it are not even made, and nothing is written."""
    made: list[str] = []

    def ask() -> Iterator[Any]:
        yield keyed.s("a")
        yield signature
        made.append("too many")

    with pytest.raises(error):
        enqueue_many(ask())
    assert (made, counts()) == ([], (0, 0))


def test_a_transaction_among_the_signatures_has_its_own() -> None:
    """What is asked for in an inner transaction rolls back with it."""

    def ask() -> Iterator[Any]:
        yield keyed.s("outer")
        with transaction.atomic():
            yield keyed.s("inner")
            transaction.set_rollback(True)
        yield keyed.s("later")

    with transaction.atomic():
        enqueue_many(ask())
    assert keys() == ["keyed:outer", "keyed:later"]


def test_a_transaction_on_another_database_is_refused() -> None:
    """Also where the first signatures came before it."""

    def ask() -> Iterator[Any]:
        yield keyed.s("a")
        with transaction.atomic(using="other"):
            yield keyed.s("b")

    with pytest.raises(WrongDatabase):
        enqueue_many(ask())
    assert counts() == (0, 0)


def test_a_switch_is_seen_between_two() -> None:
    """Signatures that take long to make are asked about one by one."""

    def ask() -> Iterator[Any]:
        yield keyed.s("a")
        turn_on("default", action="refuse", reason="r", author="me", seconds=90, task=keyed.name)
        yield keyed.s("b")

    try:
        with pytest.raises(AdmissionRefused):
            enqueue_many(ask())
    finally:
        forget()
    assert counts() == (0, 0)


def test_what_somebody_put_in_the_way_is_called(
    short: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ``apply_async`` of one's own, a wrapped signature, a receiver, options, an eager app."""
    task = app().tasks[keyed.name]
    with monkeypatch.context() as patched:
        patched.setattr(task, "apply_async", lambda args, kwargs: ("mine", args), raising=False)
        assert enqueue_many([keyed.s("a")]) == [("mine", ("a",))]
    with monkeypatch.context() as patched:
        patched.setattr(Signature, "apply_async", lambda self: "wrapped")
        assert enqueue_many([keyed.s("a")]) == ["wrapped"]
    enqueue_many([keyed.s("b").set(countdown=60), elsewhere.s("a").set(priority=3)])
    heard: list[str] = []

    def hear(sender: str, **_: Any) -> None:
        heard.append(sender)

    signals.before_task_publish.connect(hear)
    try:
        enqueue_many([keyed.s("c")])
    finally:
        signals.before_task_publish.disconnect(hear)
    assert heard == [keyed.name]
    assert short == []
    with celery_settings(app(), task_always_eager=True):
        assert enqueue_many([plain.s(1)])[0].successful()
    assert short == []


@pytest.mark.parametrize("together", [list, group])
def test_each_result_is_made_as_its_task_makes_it(
    together: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Celery finds out anew for each is asked once, and is the same."""

    def of(result: Any) -> list[Any]:
        names = ("id", "app", "backend", "using", "lane", "parent")
        return [type(result), *(getattr(result, name) for name in names)]

    def ask(first: str) -> list[Any]:
        calls = together([bound.s(f"{first}{n}", n) for n in range(3)])
        return calls.apply_async().results if together is group else enqueue_many(calls)

    with transaction.atomic():
        results = ask("a")
        assert [of(one) for one in results] == [of(bound.AsyncResult(one.id)) for one in results]
        made = []
        usual = bound.AsyncResult

        def own(task_id: str, **options: Any) -> Any:
            made.append(task_id)
            return usual(task_id, **options)

        monkeypatch.setattr(bound, "AsyncResult", own)
        assert [one.id for one in ask("b")] == made
