"""Untold ends: found once, counted, sent once more at growing distances, and given up."""

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from celery_guard.conf import guard_settings
from celery_guard.jobs import owed, standing
from celery_guard.jobs.adding import replay
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.sending import Lead
from celery_guard.models import Duty, Job, LaneLead, OutboxMessage
from celery_guard.relay import telling
from tests.factories import make_job
from tests.relay.ledger import lead
from tests.run.sessions import elsewhere

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]
GRACE = 30.0


def ago(seconds: float) -> datetime:
    """That long before now."""
    return timezone.now() - timedelta(seconds=seconds)


def ended(seconds: float, **changes: object) -> Job:
    """A job that ended ``seconds`` ago and that somebody waits for."""
    fields = {"state": "succeeded", "due_at": None, "finished_at": ago(seconds), "awaited": True}
    return make_job(**{**fields, **changes})  # type: ignore[arg-type]


def again(held: Lead, grace: float = GRACE) -> list[int]:
    """The ids of the jobs whose messages a sweep would send."""
    return [sending.id for sending in owed.untold("default", held, grace).again]


def ids(jobs: Iterable[Job]) -> list[int]:
    """Their ids."""
    return [job.pk for job in jobs]


@pytest.mark.bar
def test_an_end_untold_for_a_grace_goes_out_once_more() -> None:
    """The oldest first, with its message; not those told, not waited for, in time, or of another lane."""
    job, older = ended(40), ended(50)
    (
        ended(20),
        ended(40, answered_at=timezone.now()),
        ended(40, awaited=False),
        ended(40, lane="low"),
    )
    make_job(awaited=True)
    held = lead()
    found = owed.untold("default", held, GRACE).again
    assert [sending.id for sending in found] == ids([older, job])
    assert json.loads(found[0].body)
    assert found[0].envelope
    assert {(s.sent_at, s.state, s.public_id) for s in found} == {
        (None, "succeeded", job.public_id),
        (None, "succeeded", older.public_id),
    }
    assert again(held) == []


def test_each_try_comes_twice_as_late_as_the_one_before() -> None:
    """1, 2, 4, … graces after the end, up to the last one; then never again."""
    held, job = lead(), ended(0)
    for tries in range(owed.MOST_ANSWERS):
        wait = GRACE * 2**tries
        Job.objects.update(finished_at=ago(wait - 5))
        assert again(held) == []
        Job.objects.update(finished_at=ago(wait + 5))
        # Time did not really pass: the looks have come no further than then.
        LaneLead.objects.update(told_until=None)
        assert again(held) == [job.pk]
    Job.objects.update(finished_at=ago(GRACE * 2**owed.MOST_ANSWERS))
    assert again(held) == []
    assert not owed.ask_again("default", NamedJob(job.pk))


def test_a_child_that_dies_telling_counts_as_one_try() -> None:
    """One rule for both ways in which a message goes round once more."""
    held, job = lead(), ended(40)
    assert owed.ask_again("default", NamedJob(job.pk))
    assert again(held) == []
    Job.objects.update(finished_at=ago(70))
    assert again(held) == [job.pk]
    assert Job.objects.get().answers == 2


def test_what_ended_a_day_ago_is_left_alone() -> None:
    """Nobody's counters are kept that long, and an upgrade floods nothing."""
    held = lead()
    ended(86_500), ended(86_500, answers=3)
    assert again(held) == []


def test_one_sweep_tells_of_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have their turn with the next ones, also those that ended at one instant."""
    monkeypatch.setattr(owed, "BATCH", 2)
    held, end = lead(), ago(40)
    jobs = [ended(40, finished_at=end) for _ in range(5)]
    found = [again(held) for _ in range(4)]
    assert [len(some) for some in found] == [2, 2, 1, 0]
    assert sorted(pk for some in found for pk in some) == ids(jobs)


def test_a_look_reads_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ends were told in between, the next sweeps come to the one that was not."""
    monkeypatch.setattr(owed, "LOOK", 3)
    held = lead()
    for seconds in range(50, 40, -1):
        ended(seconds, answered_at=timezone.now())
    job = ended(35)
    assert [again(held) for _ in range(5)] == [[], [], [], [job.pk], []]


def test_a_locked_end_has_its_turn_later() -> None:
    """What somebody holds is passed over, not forgotten."""
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time")
    held, job, other = lead(), ended(50), ended(40)
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=job.pk)
        found: list[int] = []
        elsewhere(lambda: found.extend(again(held)))()
        assert found == [other.pk]
    assert again(held) == [job.pk]


def test_a_sweep_holds_no_lane_between_two_statements() -> None:
    """A relay that is frozen anywhere in it keeps no other relay from taking the lane."""
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time")
    held, job = lead(), ended(40)
    said: list[str] = []
    free: list[str] = []

    def look() -> None:
        with transaction.atomic():
            if LaneLead.objects.select_for_update(skip_locked=True).filter(lane=held.lane):
                free.append(said[-1])

    def watch(execute: Callable[..., object], sql: str, *rest: object) -> object:
        said.append(sql)
        elsewhere(look)()
        return execute(sql, *rest)

    with connection.execute_wrapper(watch):
        assert again(held) == [job.pk]
    assert any("lanelead" in sql and sql.startswith("UPDATE") for sql in said)
    assert free == said


def test_an_end_committed_after_the_look_is_met_by_the_second() -> None:
    """A transaction that stayed open past a grace hid it from the sweep, which does not go back."""
    Duty.objects.create(name="late_ends")
    held, grace, second = lead(), guard_settings().sweep.resend_grace, _second_look()
    ended(5, answered_at=timezone.now())
    assert again(held, grace) == []
    # Written before those, and committed only now.
    job = ended(second + 1)
    assert again(held, grace) == []
    telling.look_back("default")
    assert again(held, grace) == [job.pk]


def _second_look() -> float:
    return telling.LATE * guard_settings().sweep.resend_grace


def test_the_second_look_reads_each_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on where the last one ended, in bounded steps; told ends are left alone."""
    monkeypatch.setattr(owed, "LOOK", 3)
    monkeypatch.setattr(owed, "BATCH", 2)
    end = ago(100)
    jobs = [ended(100, finished_at=end) for _ in range(5)]
    ended(110, answered_at=timezone.now())
    ended(90, lane="low"), ended(90, awaited=False), ended(90, answers=3)
    since, last = ago(120), ago(60)
    assert owed.overlooked("default", "high", since, last) == 5
    assert owed.overlooked("default", "high", since, last) == 0
    assert ids(Job.objects.filter(answers=1)) == ids(jobs)


def test_a_clock_that_was_set_back_stops_no_second_look() -> None:
    """The cursor of a day that has not come yet is not believed."""
    far = int(ago(-86_400).timestamp() * 1e6)
    Duty.objects.create(name="late_ends", cursor=far)
    job = ended(_second_look() + 1)
    telling.look_back("default")
    assert Job.objects.get(answers=1) == job
    assert Duty.objects.get().cursor < far


def test_a_job_whose_message_is_purged_is_given_up_and_named() -> None:
    """There is nothing to send; that is said once."""
    held, emptied, gone = lead(), ended(40, message=None), ended(40)
    OutboxMessage.objects.filter(pk=gone.message_id).delete()
    assert owed.untold("default", held, GRACE) == owed.Untold(given_up=(emptied.pk, gone.pk))
    Job.objects.update(finished_at=ago(5000))
    assert owed.untold("default", held, GRACE) == owed.Untold()


def test_a_lost_lead_tells_nobody() -> None:
    """Only the leader of the lane sends."""
    held = lead()
    ended(40)
    LaneLead.objects.update(term=F("term") + 1)
    assert again(held) == []
    assert Job.objects.get().answers == 0


def test_what_the_broker_did_not_get_is_tried_at_its_time() -> None:
    """An outage uses up no try but the first, by whose count the job is found again."""
    held, job = lead(), ended(40)
    first = owed.untold("default", held, GRACE).again
    owed.untry("default", first)
    assert Job.objects.get().answers == 1
    Job.objects.update(finished_at=ago(70))
    owed.untry("default", owed.untold("default", held, GRACE).again)
    assert again(held) == [job.pk]


def test_who_has_been_told_is_asked_after_no_more() -> None:
    """And a replay starts anew: its end is owed again."""
    held, job = lead(), ended(40, state="failed")
    assert again(held) == [job.pk]
    assert standing.answered("default", job.pk, job.fence)
    Job.objects.update(finished_at=ago(5000))
    assert again(held) == []
    assert replay("default", job.pk) == 1
    job.refresh_from_db()
    assert (job.answers, job.answered_at) == (0, None)


_HISTORY = """
INSERT INTO celery_guard_job (public_id, task, fingerprint, lane, tenant, state, reason, plain,
    awaited, created_at, first_due_at, finished_at, answered_at, fence, starts, sends, failures,
    lost, answers)
SELECT gen_random_uuid(), 't', '', 'high', '', 'succeeded', '', false, n %% 10 > 0, now(), now(),
    now() - n * interval '0.5 second', CASE WHEN n %% 20 > 0 THEN now() END, 1, 1, 1, 0, 0,
    CASE WHEN n %% 10 = 1 THEN 10 WHEN n %% 10 = 2 THEN -1 ELSE 0 END
FROM generate_series(1, %s) AS n
"""


@pytest.mark.bar
def test_a_sweep_reads_no_history() -> None:
    """With 100,000 ended jobs of the last day, told or given up, it reads what is new, by the index."""
    if connection.vendor != "postgresql":
        pytest.skip("plans are read as PostgreSQL writes them")
    with connection.cursor() as cursor:
        cursor.execute(_HISTORY, [100_000])
        cursor.execute("ANALYZE celery_guard_job")
    held = lead()
    LaneLead.objects.update(told_until=ago(60))
    tried, new = ended(100, answers=1), ended(40)
    with CaptureQueriesContext(connection) as captured:
        assert sorted(again(held)) == ids([tried, new])
    for query in captured.captured_queries:
        if not query["sql"].lstrip("(").startswith("SELECT"):
            continue
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query['sql']}")
            (plan,) = cursor.fetchone()
        _check((plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"], query["sql"])


def _check(node: dict[str, object], sql: str) -> None:
    read = int(node["Actual Rows"]) + int(node.get("Rows Removed by Filter", 0))  # type: ignore[call-overload]
    assert read <= 200, sql
    assert (node["Node Type"], node.get("Relation Name")) != ("Seq Scan", "celery_guard_job"), sql
    for part in node.get("Plans", []):  # type: ignore[attr-defined]
        _check(part, sql)


def test_a_sweep_that_sees_nothing_writes_nothing() -> None:
    """An idle lane's row stays as it is, whatever is told there already."""
    held = lead()
    ended(40, awaited=False)
    with CaptureQueriesContext(connection) as captured:
        assert again(held) == []
    assert not [query for query in captured.captured_queries if "UPDATE" in query["sql"].split()]
    assert LaneLead.objects.get(lane=held.lane).told_until is None
