"""prove(): sound tasks pass, and each way of being unsound is found and named."""

import functools
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import TestCase

from celery_guard.models import Effect, Job
from celery_guard.testing import prove
from tests.project.shop.models import Mark, Payment
from tests.testing import tasks

NAMES = map(str, itertools.count())


def fresh() -> tuple[str]:
    """Another name for each run."""
    return (next(NAMES),)


def marks(name: str) -> int:
    """Rows of one name."""
    return Mark.objects.filter(name=name).count()


def charges(name: str) -> tuple[int, int]:
    """What the provider applied most often, and the business rows of it."""
    key = Effect.objects.filter(job__key__endswith=f":{name}").values_list(
        "provider_key", flat=True
    )
    times = tasks.bank.applied[key[0]] if key else 0
    return times, Payment.objects.filter(reference=key[0] if key else name).count()


class InATestCase(TestCase):
    """An exception stands in for the kill."""

    databases = {"default", "other"}

    def test_a_sound_task_stands_every_death(self) -> None:
        """Claim, writes, commit, answer: each is died at; one row and one further job are left."""
        proof = prove(
            tasks.sound,
            "a",
            state=lambda name: (marks(name), Job.objects.filter(key=f"mark:{name}-next").count()),
        )
        assert proof.how == "raise"
        points = {death.point for death in proof.deaths}
        assert {"run.claimed", "outbox.written", "run.finishing", "run.committed"} <= points
        assert not Job.objects.exists()

    def test_an_effect_that_can_be_asked_about_stands_every_death(self) -> None:
        """A death between call and answer: the provider is asked, not charged again."""
        proof = prove(tasks.paid, fresh=fresh, state=charges)
        assert {"settle.sent", "settle.answered"} <= {death.point for death in proof.deaths}

    def test_fresh_arguments_must_be_a_tuple(self) -> None:
        """One argument by itself is the first mistake; the message shows the comma."""
        with pytest.raises(TypeError, match=r"fresh must return .* like \(7,\), not 7"):
            prove(tasks.sound, fresh=lambda: 7, state=marks)  # type: ignore[arg-type,return-value]

    def test_a_row_outside_the_finish_is_found(self) -> None:
        """The message names the points after which it was there twice."""
        with pytest.raises(AssertionError, match=r"run\.handing_on: 2 instead of 1"):
            prove(tasks.bare, fresh=fresh, state=marks)

    def test_an_effect_for_a_person_is_found(self) -> None:
        """A manual effect gets stuck; that may be wanted, and then it is said."""
        with pytest.raises(AssertionError, match=r"settle\.answered: the job is reconciling"):
            prove(tasks.unasked, fresh=fresh, state=charges)
        prove(tasks.unasked, fresh=fresh, state=charges, by_hand=True)

    def test_a_task_that_fails_by_itself_proves_nothing(self) -> None:
        """The undisturbed run must succeed."""
        with pytest.raises(AssertionError, match="undisturbed"):
            prove(tasks.spoils, "a", state=marks)


@pytest.mark.bar
@pytest.mark.django_db(transaction=True)
def test_processes_are_killed_where_the_test_commits(prove_task: Callable[..., object]) -> None:
    """SIGKILL at each point, in a child process; the job is rescued and its rows are single."""
    proof = prove(tasks.sound, fresh=fresh, state=marks)
    assert proof.how == "kill"
    assert len(proof.deaths) >= 8
    with pytest.raises(AssertionError, match=r"run\.handing_on: 2 instead of 1"):
        prove_task(tasks.bare, fresh=fresh, state=marks)


@pytest.mark.django_db(transaction=True)
def test_a_provider_must_outlive_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lives in a file does: charged once, whatever dies."""

    def applied(key: str) -> int:
        path = tmp_path / key
        return len(path.read_text()) if path.exists() else 0

    def pay(self: object, sending: tasks.Sending) -> dict[str, str]:
        with (tmp_path / sending.key).open("a") as book:
            book.write("x")
        return {"id": sending.key}

    monkeypatch.setattr(tasks.bank, "pay", functools.partial(pay, None))
    monkeypatch.setattr(
        tasks.bank,
        "find",
        lambda sending: (
            tasks.Applied({"id": sending.key}) if applied(sending.key) else tasks.NotApplied()
        ),
    )

    def state(name: str) -> tuple[int, int]:
        effect = Effect.objects.get(job__key=f"paid:{name}")
        return applied(effect.provider_key), Payment.objects.filter(
            reference=effect.provider_key
        ).count()

    assert prove(tasks.paid, fresh=fresh, state=state).how == "kill"


@pytest.mark.django_db(transaction=True)
def test_runs_that_commit_need_cases_of_their_own() -> None:
    """Otherwise they would meet in one key."""
    with pytest.raises(ValueError, match="fresh"):
        prove(tasks.sound, "a", state=marks)
