"""The lists: newest first, by keys, by filters that cost nothing, never counted."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from celery_guard.jobs.states import State
from celery_guard.models import Attempt, Job
from celery_guard.watch.admin import keyset
from celery_guard.watch.admin.keyset import ReadOnlyAdmin
from tests.factories import make_job
from tests.watch.admin.operators import Operator
from tests.watch.admin.pages import ATTEMPTS, JOBS, LANES, MESSAGES, get, text
from tests.watch.rows import ended, running, sent

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]


def test_newest_first_and_by_pages_of_keys(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older and newer walk through everything once, in both directions."""
    monkeypatch.setattr(ReadOnlyAdmin, "list_per_page", 2)
    jobs = [make_job().pk for _ in range(5)][::-1]
    pages = [get(viewer, JOBS), get(viewer, JOBS, older=jobs[1]), get(viewer, JOBS, older=jobs[3])]
    assert [_links(page) for page in pages] == [
        {"older": jobs[1]},
        {"newer": jobs[2], "older": jobs[3]},
        {"newer": jobs[4]},
    ]
    assert _rows(get(viewer, JOBS, newer=jobs[4])) == jobs[2:4]
    assert _rows(get(viewer, JOBS, newer=jobs[2])) == jobs[0:2]
    assert _links(get(viewer, JOBS, newer=jobs[2])) == {"older": jobs[1]}


def _rows(answer: object) -> list[int]:
    return [row.pk for row in answer.context["cl"].result_list]  # type: ignore[attr-defined]


def _links(answer: object) -> dict[str, int]:
    change_list = answer.context["cl"]  # type: ignore[attr-defined]
    links = (change_list.newer_link, change_list.older_link)
    pairs = [pair for link in links for pair in parse_qsl(link.lstrip("?"))]
    return {name: int(value) for name, value in pairs if name in ("older", "newer")}


def test_a_link_keeps_the_filter_and_a_filter_drops_the_place(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place in one list means nothing in another."""
    monkeypatch.setattr(ReadOnlyAdmin, "list_per_page", 1)
    jobs = [make_job("low").pk for _ in range(3)]
    page = get(viewer, JOBS, lane="low", older=jobs[2])
    assert page.context["cl"].older_link == f"?lane=low&older={jobs[1]}"
    assert f"older={jobs[2]}" not in text(page)


@pytest.mark.parametrize("place", ["older", "newer"])
def test_a_place_that_is_no_number_is_no_place(viewer: Client, place: str) -> None:
    """Edited addresses do no harm."""
    job = make_job()
    assert _rows(get(viewer, JOBS, **{place: "x'; DROP TABLE"})) == [job.pk]


def test_the_state_filter_finds_each_state(viewer: Client) -> None:
    """Waiting holds sent and unsent; dead letters are failed and dead."""
    waiting = {make_job().pk, sent().pk, make_job(due_in=60).pk}
    held = {running().pk}
    failed, dead = ended(state=State.FAILED).pk, ended(state=State.DEAD).pk
    done = {ended().pk}
    assert set(_rows(get(viewer, JOBS, state="waiting"))) == waiting
    assert set(_rows(get(viewer, JOBS, state="running"))) == held
    assert set(_rows(get(viewer, JOBS, state="succeeded"))) == done
    assert set(_rows(get(viewer, JOBS, state="dead-letters"))) == {failed, dead}
    assert set(_rows(get(viewer, JOBS, state="dead"))) == {dead}
    assert len(_rows(get(viewer, JOBS, state="nonsense"))) == 7


def test_rare_states_are_looked_for_a_part_at_a_time(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no index leads, a page looks through so many ids, says which, and links onwards."""
    monkeypatch.setattr(keyset, "REACH", 4)
    old = ended(state=State.DEAD).pk
    between = [make_job().pk for _ in range(5)]
    new = ended(state=State.FAILED).pk
    first = get(viewer, JOBS, state="dead-letters")
    assert _rows(first) == [new]
    assert _links(first) == {"older": between[2]}
    assert f"looked through {between[2]} to {new}" in text(first)
    second = get(viewer, JOBS, state="dead-letters", older=between[2])
    assert _rows(second) == [old]
    assert _links(second) == {"newer": old}
    empty = get(viewer, JOBS, state="dead-letters", newer=old)
    assert _rows(empty) == []
    assert _links(empty) == {"newer": between[3], "older": between[0]}
    assert _rows(get(viewer, JOBS, state="dead-letters", newer=between[3])) == [new]


def test_a_look_that_takes_too_long_becomes_a_look_at_a_part(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter whose rows lie below a flood of others: bounded all the same, and it goes on."""
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL bounds a statement without session state")
    jobs = [make_job("low").pk for _ in range(3)]
    monkeypatch.setattr(keyset, "REACH", 2)
    monkeypatch.setattr(keyset, "TIME_MOST", 0.2)
    usual = keyset.KeysetChangeList._page

    def slow(page: keyset.KeysetChangeList, reach: int | None) -> object:
        if reach is None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(5)")
        return usual(page, reach)

    monkeypatch.setattr(keyset.KeysetChangeList, "_page", slow)
    answer = viewer.get(JOBS, {"lane": "low"})
    assert _rows(answer) == [jobs[2], jobs[1]]
    assert _links(answer) == {"older": jobs[1]}


def test_lane_and_task_filters_know_what_there_is(viewer: Client) -> None:
    """Choices come from the settings and from the index, not from a scan."""
    low = make_job("low", task="shop.b")
    make_job("elsewhere", task="shop.a")
    page = get(viewer, JOBS, lane="low")
    assert _rows(page) == [low.pk]
    assert {"?lane=elsewhere", "?lane=high"} <= {
        choice["query_string"]
        for spec in page.context["cl"].filter_specs
        for choice in spec.choices(page.context["cl"])
    }
    assert _rows(get(viewer, JOBS, task="shop.b")) == [low.pk]


def test_search_finds_a_job_by_each_of_its_names(viewer: Client) -> None:
    """Exact key, public id, id: each a look-up; nothing is searched by its contents."""
    job = make_job(key="invoice:7")
    make_job(key="invoice:70")
    for term in ("invoice:7", str(job.public_id), job.public_id.hex, str(job.pk), " invoice:7 "):
        assert _rows(get(viewer, JOBS, q=term)) == [job.pk]
    for term in ("invoice", "9" * 30, "shop.noop"):
        assert _rows(get(viewer, JOBS, q=term)) == []


def test_no_column_can_be_sorted_or_filtered_by_hand(viewer: Client) -> None:
    """An address that asks for another order or column sorts and scans nothing."""
    jobs = [make_job().pk, make_job().pk]
    assert _rows(get(viewer, JOBS, o="3")) == jobs[::-1]
    assert viewer.get(JOBS, {"error__contains": "x"}).status_code == 400
    assert viewer.get(JOBS, {"message__body__contains": "x"}).status_code == 400


def test_facets_stay_off_however_they_are_asked_for(viewer: Client) -> None:
    """Facets would count every choice of every filter."""
    make_job()
    get(viewer, JOBS, _facets="True")


def test_large_columns_stay_in_the_database(viewer: Client) -> None:
    """Neither the return value nor a body is read for a list."""
    ended(result="9" * 1000)
    page = get(viewer, JOBS)
    assert page.context["cl"].result_list[0].get_deferred_fields() == {"result"}
    page = get(viewer, MESSAGES)
    assert page.context["cl"].result_list[0].get_deferred_fields() == {"body"}


def test_attempts_are_listed_and_found_by_their_job(viewer: Client) -> None:
    """Without a join for the job."""
    job, other = ended(state=State.FAILED), ended(state=State.FAILED)
    for whose in (job, other):
        Attempt.objects.create(
            job=whose, number=1, outcome="failed", reason="permanent", ended_at=whose.created_at
        )
    assert len(_rows(get(viewer, ATTEMPTS))) == 2
    assert [a.job_id for a in get(viewer, ATTEMPTS, q=job.pk).context["cl"].result_list] == [job.pk]
    assert _rows(get(viewer, ATTEMPTS, q="nonsense")) == []


def test_messages_are_listed_by_how_they_travel(viewer: Client) -> None:
    """Task, queue and size; the task's arguments are not on the page."""
    job = make_job("high", args=("secret-argument",))
    page = text(get(viewer, MESSAGES))
    assert "shop.noop" in page
    assert "secret-argument" not in page
    assert _rows(get(viewer, MESSAGES, q=job.message_id)) == [job.message_id]


@pytest.mark.parametrize("path", [JOBS, ATTEMPTS, MESSAGES, LANES])
def test_nothing_can_be_added_changed_or_deleted(admin_client: Client, path: str) -> None:
    """Not even by a superuser: rows come and go by the ledger's moves alone."""
    make_job()
    assert admin_client.get(f"{path}add/").status_code == 403
    page = admin_client.get(path)
    assert "delete_selected" not in text(page)
    assert Job.objects.count() == 1


@pytest.mark.parametrize("path", [JOBS, ATTEMPTS, MESSAGES, LANES])
def test_who_may_not_view_sees_nothing(operator: Operator, path: str) -> None:
    """Staff without the permission gets 403."""
    assert operator(view=False).get(path).status_code == 403


def test_the_admin_passes_djangos_checks() -> None:
    """Fields, filters and actions are named right."""
    call_command("check", "--tag", "admin", "--fail-level", "WARNING")
