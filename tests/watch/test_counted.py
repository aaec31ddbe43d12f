"""What is counted and timed as it happens, in all processes, and how a scrape tells it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from celery_guard import AdmissionRefused, admit
from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.models import Job, Series
from celery_guard.watch import counted, counters
from celery_guard.watch.counted import COUNTED, OTHER, TIMED, bucket
from celery_guard.watch.counters import Tally, series_tally
from celery_guard.watch.metrics import PREFIX
from celery_guard.watch.prometheus import GuardCollector
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop import tasks

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]

MARK = "tests.project.shop.tasks.mark"


@pytest.fixture(autouse=True)
def nothing_counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No counts of earlier tests, none left for later ones."""
    series_tally.forget()
    monkeypatch.setattr(counted, "_known", {})
    yield
    series_tally.forget()


def queue(lane: str = "high") -> str:
    return guard_settings().lane(lane).queue


def ended(outcome: str = "succeeded", task: str = MARK, seconds: float = 0.2, **facts: str) -> None:
    """An attempt ended, as the run room says it."""
    told = {"lane": "high", "using": "default", "error": None, **facts}
    emit("run.ended", job=1, task=task, outcome=outcome, seconds=seconds, **told)


class Told:
    """Samples by name and labels: `told("job_attempts_total", task="t")`, None where there is none."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))

    def __call__(self, name: str, **labels: str) -> float | None:
        found = self.all(name)
        return found.get(frozenset(labels.items()))

    def all(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        samples = [sample for family in self.families for sample in family.samples]
        return {
            frozenset(sample.labels.items()): sample.value
            for sample in samples
            if sample.name == f"{PREFIX}{name}"
        }


def told() -> Told:
    """A whole scrape after a flush."""
    series_tally.flush()
    registry = CollectorRegistry()
    registry.register(GuardCollector())
    return Told(generate_latest(registry).decode())


@pytest.mark.bar
def test_a_scrape_tells_what_real_workers_did(processes: Processes, scratch: Path) -> None:
    """Five jobs of two processes: five attempts that succeeded, their waits and their run times."""
    for number in range(5):
        tasks.mark.delay(f"job-{number}")
    processes.worker(concurrency=2)
    wait_for(lambda: Job.objects.filter(state="succeeded").count() == 5, what="all jobs")
    of = {"queue": queue("medium"), "task": MARK}
    wait_for(
        lambda: told()("job_attempts_total", outcome="succeeded", **of) == 5, what="the counts"
    )
    found = told()
    assert found("job_duration_seconds_count", **of) == 5
    assert found("job_queue_time_seconds_count", queue=queue("medium")) == 5
    assert (found("job_queue_time_seconds_sum", queue=queue("medium")) or 0) > 0


def test_a_histogram_is_cumulative_and_its_sum_is_in_seconds() -> None:
    """0.2 s, 0.2 s and 700 s: two up to 0.25, three in all."""
    for seconds in (0.2, 0.2, 700):
        ended(seconds=seconds)
    found, of = told(), {"queue": queue(), "task": MARK}
    bounds = ("0.1", "0.25", "600.0", "+Inf")
    upto = [found("job_duration_seconds_bucket", le=bound, **of) for bound in bounds]
    assert upto == [0, 2, 2, 3]
    assert found("job_duration_seconds_count", **of) == 3
    assert found("job_duration_seconds_sum", **of) == pytest.approx(700.4)


def test_only_success_has_a_run_time_and_only_a_first_start_a_wait() -> None:
    """A failure that takes a time-out would hide how long the work takes; a retry has waited on
    purpose."""
    ended("failed", error="ValueError")
    emit("run.began", job=1, task=MARK, lane="high", using="default", waited=None)
    found = told()
    assert found("job_attempts_total", queue=queue(), task=MARK, outcome="failed") == 1
    assert found("job_errors_total", task=MARK, exception="ValueError") == 1
    assert not found.all("job_duration_seconds_count")
    assert not found.all("job_queue_time_seconds_count")


def test_a_wait_as_long_as_the_objective_is_in_time(settings: Settings) -> None:
    """Each objective is a bucket's bound, and stays one after it has changed."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "lanes": {"high": {"objective": 7}}}
    assert bucket(TIMED[0], 7) == "7"
    emit("run.began", job=1, task=MARK, lane="high", using="default", waited=6.5)
    series_tally.flush()
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "lanes": {"high": {"objective": 8}}}
    found, name = told(), "job_queue_time_seconds_bucket"
    counts = [found(name, queue=queue(), le=bound) for bound in ("5.0", "7.0", "8.0")]
    assert counts == [0, 1, 1]


def test_decisions_are_counted_where_a_limit_is_set(settings: Settings) -> None:
    """Each with what was said and why; a lane without limits costs nothing and counts nothing."""
    usual = settings.CELERY_GUARD
    with admit(tasks.mark, ("free",)):
        pass
    lanes = {**usual["lanes"], "medium": {"admission": {"depth": 1}}}
    settings.CELERY_GUARD = {**usual, "lanes": lanes}
    with admit(tasks.mark, ("one",)), pytest.raises(AdmissionRefused):
        admit(tasks.mark, ("two",))
    found = told().all("admission_decisions_total")
    accepted = {"queue": queue("medium"), "decision": "accept", "reason": ""}
    refused = {"queue": queue("medium"), "decision": "refuse", "reason": "depth"}
    assert found == {frozenset(accepted.items()): 1, frozenset(refused.items()): 1}


OTHERS = {"queue": OTHER, "task": OTHER, "outcome": OTHER}


def test_label_sets_past_the_bound_are_told_under_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the process that counts, so that rows have a bound, and nothing is lost of the sum."""
    attempts = next(metric for metric in COUNTED if metric.name == "job_attempts")
    for number in range(attempts.most + 3):
        ended(task=f"made.up.{number}")
    found = told()
    assert found("job_attempts_total", **OTHERS) == 3
    assert sum(found.all("job_attempts_total").values()) == attempts.most + 3


def test_many_processes_together_do_not_pass_the_bound() -> None:
    """Each within its own bound: the oldest rows keep their names."""
    attempts = next(metric for metric in COUNTED if metric.name == "job_attempts")
    rows = [
        Series(name="job_attempts", labels=f'["high", "t{n}", "succeeded"]', value=1)
        for n in range(attempts.most + 2)
    ]
    Series.objects.bulk_create(rows)
    found = told()
    assert found("job_attempts_total", queue=queue(), task="t0", outcome="succeeded") == 1
    assert found("job_attempts_total", **OTHERS) == 2


def test_a_flush_that_hangs_is_joined_by_no_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen database holds one thread of a process, not one more every few seconds."""
    hangs, goes_on = threading.Semaphore(0), threading.Event()

    def hang(*_: object) -> None:
        hangs.release()
        goes_on.wait(30)

    monkeypatch.setattr(counters, "EVERY", 0.01)
    monkeypatch.setattr(counters, "_add", hang)
    tally = Tally(counters.OF_SERIES)
    tally.timed = True
    tally.count("default", "things", "[]")
    assert hangs.acquire(timeout=10)
    timer = tally._timer
    tally.count("default", "things", "[]")
    assert tally._timer is timer
    goes_on.set()
    assert hangs.acquire(timeout=10), "what was counted meanwhile is added afterwards"
    wait_for(lambda: tally._timer is None, what="the end of the last flush")


def test_every_counted_metric_is_in_a_scrape() -> None:
    """Of its kind, also while nothing was counted for it: a rule on it is no rule on nothing."""
    kinds = {family.name: family.type for family in told().families}
    assert {m.full_name: m.kind for m in (*COUNTED, *TIMED)}.items() <= kinds.items()
