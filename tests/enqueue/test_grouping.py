"""A plain group is written without Celery's calls, and is what they would have made of it."""

import contextlib
from typing import Any

import pytest
from celery import chain, group
from celery.canvas import Signature
from celery.result import GroupResult
from django.db import transaction

from celery_guard.enqueue import canvas
from celery_guard.errors import KeyConflict, MissingKey
from celery_guard.jobs.models import Job
from tests.enqueue.rows import counts, envelope_of, headers_of, jobs, keys, message_of
from tests.enqueue.tasks import bound, elsewhere, keyed, plain, returned, silent

pytestmark = [
    pytest.mark.filterwarnings("ignore:Call to deprecated"),
    pytest.mark.mariadb,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]

MEMBERS = (bound.s("a", 1), silent.s("b"), keyed.s("c", [1.5]), bound.s("é", shop=2))
LONG_WAY: dict[str, Any] = {"add_to_parent": True}
"""What a group does by itself, said aloud: Celery makes it then."""


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each of the groups went the short way."""
    went: list[bool] = []
    apply = canvas.apply_together

    def note(asked: Any) -> Any:
        result = apply(asked)
        went.append(result is not None)
        return result

    monkeypatch.setattr(canvas, "apply_together", note)
    return went


def rows(result: Any) -> list[Any]:
    """What the jobs of a group and their messages say, in the order of its results."""
    found = [Job.objects.get(public_id=child.public_id) for child in result]
    assert [job.pk for job in jobs()] == [job.pk for job in found]
    return [row(job, result.id) for job in found]


def row(job: Job, group_id: str) -> dict[str, Any]:
    """What one of them says, but for what is another in every group."""
    names = ("task", "key", "fingerprint", "lane", "tenant", "reason", "awaited", "mode")
    envelope = envelope_of(job)
    headers = dict(envelope.headers)
    ids = [headers.pop(name) for name in ("id", "root_id", "group")]
    assert ids == [str(job.public_id), str(job.public_id), group_id]
    properties = {n: v for n, v in envelope.properties.items() if n != "correlation_id"}
    return {n: getattr(job, n) for n in names} | {
        "headers": headers,
        "properties": properties,
        "body": bytes(message_of(job).body),
    }


@pytest.mark.parametrize("made", [tuple, iter], ids=["given", "made one by one"])
def test_the_rows_are_celerys_own(short: list[bool], made: Any) -> None:
    """Members, their places, whom they answer, and the ids in the caller's hands."""
    result = group(made(MEMBERS)).delay()
    assert short == [True]
    mine = rows(result)
    Job.objects.all().delete()
    assert mine == rows(group(made(MEMBERS)).apply_async(**LONG_WAY))
    assert short == [True]


def test_the_result_is_celerys_own(short: list[bool]) -> None:
    """A group's result of handles that nobody has told yet, and that are told of one by one."""
    told: list[Any] = []
    result = group(silent.s("a"), keyed.s("b")).apply_async()
    other = group(silent.s("c"), keyed.s("d")).apply_async(**LONG_WAY)
    assert short == [True]
    for one in (result, other):
        assert isinstance(one, GroupResult)
        assert [type(child) for child in one] == [type(child) for child in other]
        assert [child.ignored for child in one] == [False, False]
        one.then(told.append)
        for child in one:
            assert told == []
            child.on_ready(child)
        assert [found.id for found in told] == [one.id]
        told.clear()


class _Other(Signature):
    """A signature of somebody's own."""


@pytest.mark.parametrize(
    "asked",
    [
        lambda: group(silent.s("a"), plain.s()),
        lambda: group(silent.s("a"), group(silent.s("b"))),
        lambda: group(silent.s("a"), chain(silent.si("b"), silent.si("c"))),
        lambda: group(silent.s("a"), silent.s("b").set(countdown=1)),
        lambda: group(silent.s("a"), _Other(silent.s("b"))),
        lambda: group(silent.s("a")).set(task_id="mine"),
    ],
)
def test_what_says_more_is_celerys(short: list[bool], asked: Any) -> None:
    """Other members, options of a member or of the group."""
    asked().apply_async()
    assert short == [False]
    assert keys()[0] == "silent:a"


def test_partial_arguments_are_celerys(short: list[bool]) -> None:
    """They come before those of the members."""
    group(returned.s(1)).delay("a b")
    assert short == []
    assert keys() == ["returned:a b"]


def test_what_somebody_put_in_the_way_is_called(
    short: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrapped ``freeze``, for one."""
    frozen: list[Any] = []
    freeze = Signature.freeze

    def note(self: Any, *args: Any, **options: Any) -> Any:
        frozen.append(self["task"])
        return freeze(self, *args, **options)

    monkeypatch.setattr(Signature, "freeze", note)
    group(silent.s("a")).delay()
    assert (short, frozen) == ([False], [silent.name])


def test_a_taken_key_is_an_echo(short: list[bool]) -> None:
    """Each member keeps its id, so that the group's result is complete."""
    result = group(silent.s("a"), silent.s("b"), silent.s("a")).delay()
    assert short == [True]
    found = {headers_of(job)["id"]: job for job in jobs()}
    survivor, other, echo = (found[child.id] for child in result)
    assert (survivor.key, echo.survivor_id, other.key) == ("silent:a", survivor.pk, "silent:b")


@pytest.mark.parametrize("inside", [True, False])
def test_all_or_nothing(short: list[bool], inside: bool) -> None:
    """A fault of one member, found at the call or by the database, leaves no other's job."""
    returned.delay("a", 1)
    for wrong, error in ((returned.s("a", 2), KeyConflict), (silent.s(None), MissingKey)):
        asked = group(silent.s("b"), elsewhere.s("c"), wrong)
        with contextlib.ExitStack() as opened:
            for using in ("default", "other") if inside else ():
                opened.enter_context(transaction.atomic(using=using))
            opened.enter_context(pytest.raises(error))
            asked.delay()
    assert (short, keys(), counts("other")) == ([True], ["returned:a"], (0, 0))
