"""Two workers, a relay, a rescuer and an admin in all orders of small length, on real connections."""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.db import transaction

from celery_guard.errors import KeyBusy
from celery_guard.jobs import adding, claiming, rescuing, running
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.jobs.models import Job
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.release import release
from celery_guard.jobs.sending import Sending, unsend
from celery_guard.jobs.states import TERMINAL
from celery_guard.relay import lead as leads
from tests.factories import make_job
from tests.project.shop import tasks
from tests.project.shop.models import Mark
from tests.proof.orders import Company, Step, orders_of

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
    pytest.mark.mariadb,
]
LANE = "high"


@pytest.fixture
def company() -> Iterator[Company]:
    """Nobody yet; whoever is called keeps one connection through the test."""
    actors = Company()
    yield actors
    actors.end()


class Worker:
    """One attempt at the job, statement by statement."""

    def __init__(self, job_id: int) -> None:
        self._job_id = job_id
        self.owner = uuid.uuid4()

    def claim(self, memory: dict[str, Any]) -> None:
        """As for a message: only a sent, waiting job."""
        claimed = claiming.claim("default", NamedJob(self._job_id), owner=self.owner, lease=60.0)
        memory["hold"] = claimed and claimed.hold

    def write(self, memory: dict[str, Any]) -> None:
        """Open the transaction: the business row and the end."""
        if memory["hold"] is None:
            return
        transaction.set_autocommit(False)
        Mark.objects.create(name="row")
        memory["held"] = running.succeed(memory["hold"])

    def commit(self, memory: dict[str, Any]) -> None:
        """Or roll back, when the job is no longer held."""
        if memory["hold"] is None:
            return
        (transaction.commit if memory["held"] else transaction.rollback)()
        transaction.set_autocommit(True)

    def finish(self, memory: dict[str, Any]) -> None:
        """Write and commit in one step."""
        self.write(memory)
        self.commit(memory)

    def retry(self, memory: dict[str, Any]) -> None:
        """Fail in passing: again in an hour."""
        if memory["hold"] is not None:
            memory["moved"] = running.put_back(
                memory["hold"], reason="retry", due=3600.0, failures=1
            )


def rescue(job_id: int) -> Step:
    """Whoever holds the job is known to be dead."""

    def step(memory: dict[str, Any]) -> None:
        owner = Job.objects.values_list("owner", flat=True).get(pk=job_id)
        memory["lost"] = owner and rescuing.lose("default", NamedJob(job_id), owner, limit=9)

    return step


def rescue_and_send(job_id: int) -> Step:
    """The same, and a relay sends it again at once."""

    def step(memory: dict[str, Any]) -> None:
        rescue(job_id)(memory)
        mark_sent(memory)

    return step


def mark_sent(memory: dict[str, Any]) -> None:
    """A relay's release."""
    owner = uuid.uuid4()
    led = leads.take("default", owner, [LANE], 30.0)
    if LANE in led:
        memory["batch"] = release("default", led[LANE], 10, None)
        leads.resign("default", owner)


def late_failure(memory: dict[str, Any]) -> None:
    """The same relay's report that nothing arrived, however late."""
    memory["back"] = unsend("default", memory.get("batch", ()))


def sent_job() -> int:
    """A job that has been sent."""
    Job.objects.all().delete()
    Mark.objects.all().delete()
    job = make_job(LANE)
    Job.objects.filter(pk=job.pk).update(sent_at=DatabaseNow())
    return job.pk


def finish_what_is_left(job_id: int) -> Job:
    """A healthy relay and worker come along, as often as it takes."""
    for _ in range(4):
        memory: dict[str, Any] = {}
        rescue(job_id)(memory)
        Job.objects.filter(pk=job_id, state="waiting").update(due_at=in_seconds(-1))
        mark_sent(memory)
        worker = Worker(job_id)
        for step in (worker.claim, worker.write, worker.commit):
            step(memory)
    return Job.objects.get(pk=job_id)


@pytest.mark.bar
def test_two_workers_and_a_rescuer(company: Company) -> None:
    """Both got a message; one is taken for dead at any moment: one row, whatever the order."""
    for order in orders_of({"a": "123", "b": "12", "rescuer": "1"}):
        job_id = sent_job()
        first, second = Worker(job_id), Worker(job_id)
        programs: dict[str, Sequence[Step]] = {
            "a": (first.claim, first.write, first.commit),
            "b": (second.claim, second.finish),
            "rescuer": (rescue_and_send(job_id),),
        }
        company.play(programs, order)
        assert company.errors() == [], order
        job = finish_what_is_left(job_id)
        assert (job.state, Mark.objects.count()) == ("succeeded", 1), order
        assert job.fence >= job.starts, order


@pytest.mark.bar
def test_a_stale_twin_meets_a_job_that_waits_for_its_retry(company: Company) -> None:
    """Its claim gets nothing: the job isn't sent. If the twin came first, it is the attempt."""
    names = {"a": "12", "twin": "1"}
    for order in orders_of(names):
        job_id = sent_job()
        worker, twin = Worker(job_id), Worker(job_id)
        company.play({"a": (worker.claim, worker.retry), "twin": (twin.claim,)}, order)
        job = Job.objects.get(pk=job_id)
        assert job.starts == 1, order
        if company.said("a")["hold"] is not None:
            assert company.said("twin")["hold"] is None, order
            assert (job.state, job.sent_at, job.failures) == ("waiting", None, 1), order
            assert Job.objects.filter(pk=job_id, due_at__gt=in_seconds(3000)).exists()


@pytest.mark.bar
def test_a_late_failed_publish_meets_a_rescheduled_job(company: Company) -> None:
    """It takes back its own sending only: never a claim, a retry's due time or a newer sending."""
    names = {"relay": "12", "worker": "12", "other": "1"}
    for order in orders_of(names):
        sent_job()
        Job.objects.update(sent_at=None)
        job_id = Job.objects.get().pk
        worker = Worker(job_id)
        programs: dict[str, Sequence[Step]] = {
            "relay": (mark_sent, late_failure),
            "worker": (worker.claim, worker.retry),
            "other": (mark_sent,),
        }
        company.play(programs, order)
        job = Job.objects.get(pk=job_id)
        if company.said("worker")["hold"] is not None:
            assert (job.state, job.sent_at, job.failures) == ("waiting", None, 1), order
            assert Job.objects.filter(pk=job_id, due_at__gt=in_seconds(3000)).exists(), order
        others: list[Sending] = company.said("other").get("batch", [])
        if any(sending.id == job_id for sending in others) and job.starts == 0:
            assert job.sent_at == others[0].sent_at, order


@pytest.mark.bar
def test_an_admin_meets_everybody(company: Company) -> None:
    """Cancel and replay between a claim, its commit and a rescue: one row or none, and a clear end."""
    names = {"a": "123", "admin": "12", "rescuer": "1"}
    for order in orders_of(names):
        job_id = sent_job()
        worker = Worker(job_id)

        def cancel(memory: dict[str, Any], job_id: int = job_id) -> None:
            memory["cancelled"] = adding.cancel("default", job_id)

        def replay(memory: dict[str, Any], job_id: int = job_id) -> None:
            memory["replayed"] = adding.replay("default", job_id)

        programs: dict[str, Sequence[Step]] = {
            "a": (worker.claim, worker.write, worker.commit),
            "admin": (cancel, replay),
            "rescuer": (rescue(job_id),),
        }
        company.play(programs, order)
        admin = company.said("admin")
        assert admin["replayed"] == admin["cancelled"], order
        job = finish_what_is_left(job_id)
        assert job.state in TERMINAL, order
        assert Mark.objects.count() == 1, order


def begin(memory: dict[str, Any]) -> None:
    """Open a transaction."""
    transaction.set_autocommit(False)


def ask(key: str) -> Step:
    """Enqueue under the key, unless told to give way before."""

    def step(memory: dict[str, Any]) -> None:
        if not memory.get("broken"):
            try:
                tasks.mark.delay(key)
            except KeyBusy:
                memory["broken"] = True

    return step


def commit(memory: dict[str, Any]) -> None:
    """Or roll back, when told to give way."""
    (transaction.rollback if memory.get("broken") else transaction.commit)()
    transaction.set_autocommit(True)


@pytest.mark.bar
def test_two_keys_inserted_in_opposite_order(company: Company) -> None:
    """One transaction may be told to give way, with a typed error; no key is there twice, none hangs."""

    programs: dict[str, Sequence[Step]] = {
        "a": (begin, ask("one"), ask("two"), commit),
        "b": (begin, ask("two"), ask("one"), commit),
    }
    for order in orders_of(programs):
        if order[0] != "a" or order.index("b") != 1:
            continue
        Job.objects.all().delete()
        company.play(programs, order)
        assert company.errors() == [], order
        broken = [name for name in programs if company.said(name).get("broken")]
        assert len(broken) < 2, order
        assert sorted(Job.objects.values_list("key", flat=True)) == ["mark:one", "mark:two"], order
