"""A draft becomes the rows that the call's own way would have written, or there is none."""

import gc
import uuid
import weakref
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_guard import batch, enqueue_many
from celery_guard.enqueue.draft import Draft, common_of, fresh_ids
from celery_guard.enqueue.template import template_of
from celery_guard.errors import KeyConflict, MissingKey
from celery_guard.jobs.models import Job
from celery_guard.outbox import store
from tests.enqueue.rows import counts, end, keys, message_of
from tests.enqueue.tasks import app, bound, elsewhere, high, keyed, returned, silent, unkeyed

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]

TASKS = (bound, elsewhere, returned, silent, unkeyed)
TEXT = st.text(alphabet="aZ09 _%{}s<>~", max_size=102) | st.text(max_size=5)
VALUES = TEXT | st.integers() | st.integers(-9, 9) | st.booleans() | st.none() | st.floats(0, 1)
SEVERAL = pytest.mark.parametrize("together", [True, False])
PLACES: list[tuple[dict[str, Any], int | None]] = [
    ({}, None),
    ({"group_id": 'g "%s" ☃', "root_id": "r", "reply_to": "me"}, 7),
]


def draft_of(
    task: Any, args: Any, kwargs: Any, place: dict[str, Any], number: int | None
) -> Draft | None:
    """The draft of a call, if it has one."""
    task = task._get_current_object()
    template = template_of(task, app())
    assert template is not None
    common = common_of(task, app(), template, place)
    return common.draft(str(uuid.uuid4()), args, kwargs, number)


def written(draft: Draft) -> Job:
    """What the database made of it."""
    found = store.insert_records(draft.using, draft.common.shared, [(0, draft.record)])
    return Job.objects.using(draft.using).get(pk=found[0])


@pytest.mark.parametrize(("place", "number"), PLACES)
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    task=st.sampled_from(TASKS),
    args=st.lists(VALUES, max_size=3).map(tuple),
    kwargs=st.dictionaries(st.sampled_from(["name", "value", "shop"]), VALUES, max_size=3),
)
def test_the_rows_are_those_of_the_long_way(
    place: dict[str, Any], number: int | None, task: Any, args: Any, kwargs: Any
) -> None:
    """Key, tenant, fingerprint, body and envelope, byte for byte, for whatever has a draft."""
    draft = draft_of(task, args, kwargs, place, number)
    if draft is None or not store.reads_records(draft.using):
        return
    item = draft.item()
    with transaction.atomic(using=draft.using):
        job = written(draft)
        message = message_of(job)
        transaction.set_rollback(True, using=draft.using)
    for name in ("public_id", "task", "key", "fingerprint", "lane", "tenant", "dependency"):
        assert getattr(job, name) == getattr(item.new, name)
    for name in ("reason", "plain", "awaited", "mode", "coalesce_key"):
        assert getattr(job, name) == getattr(item.new, name)
    assert bytes(message.body) == item.captured.body
    assert message.envelope == item.captured.envelope_text
    assert job.due_at == job.first_due_at == job.created_at


@pytest.mark.parametrize(
    ("task", "args", "kwargs"),
    [
        (bound, ("a", 1), {}),
        (bound, ("a",), {"shop": 10**17}),
        (bound, (), {"shop": -1, "name": "%s {0} %(id)s"}),
        (returned, ("a",), {"value": 0}),
        (returned, ("a", False), {}),
        (unkeyed, (), {}),
        (unkeyed, (None,), {}),
    ],
)
def test_the_commonest_calls_have_a_draft(task: Any, args: Any, kwargs: Any) -> None:
    """Or the tests of drafts would test nothing."""
    assert draft_of(task, args, kwargs, {}, None) is not None


@pytest.mark.parametrize(
    ("task", "args", "kwargs"),
    [
        (bound, ("a",), {}),
        (bound, ("a", 1), {"shop": 1}),
        (bound, ("a", 1, 2), {}),
        (bound, ("a", 1), {"other": 1}),
        (bound, (None, 1), {}),
        (bound, ("a", ""), {}),
        (bound, ("a\x00", 1), {}),
        (bound, ("é", 1), {}),
        (bound, ("a'", 1), {}),
        (bound, ["a", 1], {}),
        (returned, ("a", 1.5), {}),
        (returned, ("a", 10**18), {}),
        (keyed, ("a",), {}),
    ],
)
def test_what_needs_a_look_has_none(task: Any, args: Any, kwargs: Any) -> None:
    """What does not fit, names no key, or is not the same text for Python and JSON."""
    assert draft_of(task, args, kwargs, {}, None) is None


def test_ids_are_random_uuids() -> None:
    """Of version 4, as Celery's, and no two the same."""
    ids = list(fresh_ids(300))
    assert len(set(ids)) == 300
    for text in ids:
        found = uuid.UUID(text)
        assert (str(found), found.version, found.variant) == (text, 4, uuid.RFC_4122)


@SEVERAL
def test_a_taken_key_is_answered_with_its_job(together: bool) -> None:
    """The same work is found, twice in one call as well; an ended one runs anew."""
    first, again = silent.delay("a"), silent.delay("b")
    end(again.job.pk, "failed")
    asked = [silent.s("a"), silent.s("c"), silent.s("c"), silent.s("b")]
    handles = enqueue_many(asked if together else iter(asked))
    assert [handle.created for handle in handles] == [False, True, False, False]
    assert handles[0].public_id == first.public_id
    assert handles[1].public_id == handles[2].public_id
    assert handles[3].public_id == again.public_id
    assert handles[3].job.state == "waiting"
    assert counts() == (3, 3)


@SEVERAL
@pytest.mark.parametrize("inside", [True, False])
def test_other_arguments_under_a_key_leave_nothing(together: bool, inside: bool) -> None:
    """All or nothing, whether or not the caller goes on in its transaction."""
    returned.delay("a", 1)
    asked = [returned.s("b"), returned.s("a", 2)]
    with transaction.atomic() if inside else nullcontext(), pytest.raises(KeyConflict):
        enqueue_many(asked if together else iter(asked))
    assert keys() == ["returned:a"]


def test_several_tasks_and_ways_keep_their_order() -> None:
    """They are released as they were asked for, drafts or not, each on its database."""
    handles = enqueue_many(
        [silent.s("b"), keyed.s("x"), high.s("a"), silent.s("é"), elsewhere.s("o"), silent.s("a")]
    )
    assert keys() == ["silent:b", "keyed:x", "high:a", "silent:é", "silent:a"]
    assert keys("other") == ["elsewhere:o"]
    assert [handle.job.key for handle in handles][4:] == ["elsewhere:o", "silent:a"]
    assert all(handle.created for handle in handles)


def test_drafts_alone_keep_their_order() -> None:
    """Although their keys are locked in another."""
    enqueue_many([silent.s(name) for name in "cab"])
    assert keys() == ["silent:c", "silent:a", "silent:b"]


def test_a_failure_on_another_database_takes_them_back() -> None:
    """What one statement wrote in the caller's transaction goes by hand."""
    elsewhere.delay("o", 1)
    with transaction.atomic(), transaction.atomic(using="other"):
        with pytest.raises(KeyConflict):
            enqueue_many([silent.s("a"), elsewhere.s("o", 2)])
        assert counts() == (0, 0)


def test_a_fault_is_told_by_the_long_way() -> None:
    """A call without a key has no draft, and says why."""
    with pytest.raises(MissingKey):
        enqueue_many([silent.s("a"), silent.s(None)])
    assert counts() == (0, 0)


def test_its_handle_may_go() -> None:
    """Nothing keeps what its caller drops, as in Celery, where its end ends a subscription."""
    with batch():
        handle = weakref.ref(enqueue_many([silent.s("a")])[0])
        gc.collect()
        assert handle() is None
    assert keys() == ["silent:a"]
