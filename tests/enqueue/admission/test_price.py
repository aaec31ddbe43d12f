"""What admission costs: nothing without limits, one statement with them."""

from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from celery_guard import admit
from celery_guard.conf import guard_settings
from celery_guard.enqueue.admission.counting import statement
from celery_guard.enqueue.admission.gate import Full, take
from celery_guard.enqueue.admission.limits import caps_of
from celery_guard.enqueue.admission.models import Gate
from celery_guard.jobs.clock import in_seconds
from tests.enqueue.admission.asking import granted
from tests.enqueue.admission.conftest import Limit
from tests.enqueue.admission.tasks import of_shop, work

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("switches_read"),
]


def spent(queries: Any) -> list[str]:
    """The statements, transactions' own left out."""
    words = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")
    return [q["sql"] for q in queries.captured_queries if not q["sql"].startswith(words)]


def one_request() -> tuple[int, int]:
    """How many statements asking and enqueueing take."""
    with CaptureQueriesContext(connection) as asking:
        assert granted(of_shop, "a")
    with CaptureQueriesContext(connection) as enqueueing:
        of_shop.delay("a")
    return len(spent(asking)), len(spent(enqueueing))


@pytest.mark.bar
@pytest.mark.mariadb
def test_without_limits_it_costs_no_query() -> None:
    """``admit`` says yes, and an enqueue is what it was."""
    of_shop.delay("a")
    with CaptureQueriesContext(connection) as queries:
        assert admit(of_shop, ("a",)).action == "accept"
    assert spent(queries) == []
    plain = one_request()
    assert plain == (0, plain[1])


@pytest.mark.bar
def test_with_limits_it_costs_one_statement(limit: Limit) -> None:
    """It takes the place in lane and tenant; the insert of the job consumes it. On PostgreSQL."""
    if connection.vendor != "postgresql":
        pytest.skip("MariaDB has no such statement: it locks, counts down and inserts")
    without = one_request()[1]
    limit(medium={"depth": 1000}, tenants={"waiting": 1000, "rate": "1000/s"})
    one_request()
    assert one_request() == (1, without)


def test_a_place_does_not_wait_for_the_disk(limit: Limit) -> None:
    """A crash of the server takes the caller's transaction too; only that one waits, at its end."""
    if connection.vendor != "postgresql":
        pytest.skip("it is PostgreSQL's setting")
    limit(medium={"depth": 1000})
    caps = caps_of(guard_settings().lane("medium"), "")
    for _ in ("counted", "known"):
        with transaction.atomic(), connection.cursor() as cursor:
            assert not isinstance(take("default", caps, "medium", ""), Full)
            cursor.execute("SHOW synchronous_commit")
            assert cursor.fetchone() == ("off",)


@pytest.mark.mariadb
def test_gates_are_counted_together(limit: Limit) -> None:
    """One that is half over is counted along: else each scope brings a request a second there."""
    limit(medium={"depth": 1000}, tenants={"waiting": 1000})
    assert granted(of_shop, "a")
    lane = Gate.objects.filter(scope="lane:medium")
    lane.update(counted_at=in_seconds(-0.8))
    Gate.objects.exclude(scope="lane:medium").update(counted_at=in_seconds(-60))
    before = lane.get().counted_at
    assert granted(of_shop, "a")
    assert lane.get().counted_at != before


@pytest.mark.bar
@pytest.mark.mariadb
def test_the_count_reads_waiting_jobs_only(limit: Limit) -> None:
    """AD-04: however many have ended, only the waiting ones of the lane's index are read."""
    if connection.vendor != "postgresql":
        pytest.skip("plans are read on PostgreSQL")
    _finish_many(20_000)
    for n in range(50):
        work.delay(n)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE celery_guard_job")
        due = "2999-01-01T00:00:00Z"
        arguments = ("medium", due, 100, "medium", 100, "medium")
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + statement("count_lane"), arguments)
        ((plan,),) = cursor.fetchall()
        assert _rows_read(plan[0]["Plan"]) <= 200
        arguments = ("a", due, 100, "a", "a", 100)
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + statement("count_tenant"), arguments)
        ((plan,),) = cursor.fetchall()
        assert _rows_read(plan[0]["Plan"]) <= 200


def _finish_many(count: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO celery_guard_job (public_id, task, lane, tenant, fingerprint, state, "
            "reason, plain, awaited, created_at, first_due_at, finished_at, fence, starts, sends, "
            "failures, lost) SELECT gen_random_uuid(), 't', 'medium', 'a', '', 'succeeded', "
            "'done', false, false, now(), now(), now(), 1, 1, 1, 0, 0 FROM generate_series(1, %s)",
            [count],
        )


def _rows_read(node: dict[str, Any]) -> float:
    own = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    return float(own * node["Actual Loops"]) + sum(map(_rows_read, node.get("Plans", ())))


@pytest.mark.mariadb
def test_a_full_lane_is_not_counted_for_each_refusal(limit: Limit) -> None:
    """AD-04: what is refused must cost less than what is done."""
    limit(medium={"depth": 30_000})
    assert granted(work)
    # As if just counted: 30,000 are counted again after 0.3 s, here not for a minute.
    Gate.objects.update(room=0, counted_at=in_seconds(60))
    with CaptureQueriesContext(connection) as queries:
        assert not granted(work)
    assert not [sql for sql in spent(queries) if "LIMIT 30000" in sql]
