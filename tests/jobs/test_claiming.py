"""The claim and the success of a job, by PostgreSQL's functions."""

import dataclasses
import re
import uuid
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from celery_guard.enqueue.steering.turning import turn_on
from celery_guard.jobs import claiming, running
from celery_guard.jobs.models import Job
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.standing import Standing
from celery_guard.outbox.functions import text_of
from tests.factories import make_job

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="PostgreSQL's own"),
]
OWNER = uuid.uuid4()


def _sent(**columns: Any) -> Job:
    return make_job(**{"sent_at": timezone.now(), **columns})


def _take(job: Job, public_id: uuid.UUID | None = None) -> claiming.Claim | Standing | None:
    named = NamedJob(job.pk, public_id or job.public_id)
    return claiming.claim_or_look("default", named, owner=OWNER, lease=60)


def _claim(job: Job) -> claiming.Claim:
    claim = _take(job)
    assert isinstance(claim, claiming.Claim)
    return claim


def test_a_claim_that_fails_tells_how_the_job_stands() -> None:
    """A second delivery is answered without a second statement."""
    job = _sent()
    mine = _claim(job)
    found = _take(job)
    assert isinstance(found, Standing)
    assert (found.state, found.owner, found.fence) == ("running", OWNER, mine.hold.fence)
    with transaction.atomic():
        assert running.succeed(mine.hold, result="7")
    found = _take(job)
    assert isinstance(found, Standing)
    assert (found.state, found.reason, found.result) == ("succeeded", "done", "7")
    assert (found.owner, found.sent, found.answered) == (None, False, False)


def test_another_jobs_number_tells_nothing() -> None:
    """A message from before a restore names a number that is another job's now."""
    assert _take(_sent(), uuid.uuid4()) is None


@pytest.mark.parametrize("columns", [{"sent_at": None}, {"expires_in": -1.0}, {"state": "held"}])
def test_only_what_is_sent_fresh_and_free_is_taken(columns: dict[str, Any]) -> None:
    """What a claim must not take it leaves as it is."""
    if columns.pop("state", None):
        turn_on("default", action="hold", reason="test", author="test", seconds=300, lane="high")
    job = _sent(**columns)
    assert isinstance(_take(job), Standing)
    job.refresh_from_db()
    assert (job.state, job.fence, job.starts) == ("waiting", 0, 0)


@pytest.mark.parametrize("other", [{"fence": 9}, {"owner": uuid.uuid4()}, {"job_id": 10**9}])
def test_the_end_is_the_holders_alone(other: dict[str, Any]) -> None:
    """A commit in the end's own message is none where fence, owner and state do not match."""
    job = _sent()
    hold = _claim(job).hold

    def end() -> None:
        with transaction.atomic():
            Job.objects.filter(pk=job.pk).update(tenant="written")
            assert running.commits_at_once(hold)
            assert not running.succeed(dataclasses.replace(hold, **other), commit=True)
            raise LookupError

    with pytest.raises(LookupError):
        end()
    job.refresh_from_db()
    assert (job.state, job.tenant) == ("running", "")
    with transaction.atomic():
        assert running.succeed(hold, result="1", commit=True)
    job.refresh_from_db()
    assert (job.state, job.reason, job.result, job.owner) == ("succeeded", "done", "1", None)


def test_the_end_of_a_coalesced_job_comes_before_its_commit() -> None:
    """Its followers are freed in between."""
    job = _sent(coalesce_key="k")
    with transaction.atomic():
        assert not running.commits_at_once(_claim(job).hold)


@pytest.mark.parametrize(
    ("name", "begin", "end", "kinds"),
    [
        (
            "claim_3",
            "UPDATE",
            " INTO told",
            {
                "its_id": "bigint",
                "its_public_id": "uuid",
                "its_owner": "uuid",
                "lease": "float8",
                "moment": "timestamptz",
            },
        ),
        (
            "succeed_1",
            "UPDATE",
            ";\n    IF",
            {
                "why": "text",
                "outcome": "text",
                "its_id": "bigint",
                "its_fence": "integer",
                "its_owner": "uuid",
            },
        ),
    ],
)
def test_the_plans_that_are_kept_look_up_by_id(
    name: str, begin: str, end: str, kinds: dict[str, str]
) -> None:
    """A session keeps its plan from when the table was empty; a scan of it all must not be one.

    Nor may a plan look so dear that PostgreSQL compiles it.
    """
    text = text_of(name)
    query = text[text.index(begin) :]
    query = query[: query.index(end)]
    for place, argument in enumerate(kinds, 1):
        query = re.sub(rf"\b{argument}\b", f"${place}", query)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ANALYZE celery_guard_job, celery_guard_switch")
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"PREPARE planned ({', '.join(kinds.values())}) AS {query}")
        explain = f"EXPLAIN EXECUTE planned ({', '.join(['NULL'] * len(kinds))})"
        cursor.execute(explain)
        plan = "\n".join(row[0] for row in cursor.fetchall())
        # Where few jobs are sent the lanes' index may look cheaper than the key; it must not be able to.
        cursor.execute("ALTER TABLE celery_guard_job DROP CONSTRAINT celery_guard_job_pkey CASCADE")
        cursor.execute(explain)
        without_key = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("DEALLOCATE planned")
        transaction.set_rollback(True)
    assert "Seq Scan" not in plan, plan
    assert "using celery_guard_job_pkey" in plan, plan
    assert "JIT" not in plan, plan
    assert "celery_guard_job_line" not in without_key, without_key
