"""Any sequence of moves by anybody: the ledger stays within its table of moves and its fences."""

import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from celery_guard.jobs import adding, claiming, rescuing, running, standing
from celery_guard.jobs.models import Job
from celery_guard.jobs.named import NamedJob
from celery_guard.jobs.release import release
from celery_guard.jobs.running import Hold
from celery_guard.jobs.sending import Sending, unsend
from celery_guard.jobs.states import MOVES, RERUNNABLE, TERMINAL, State
from celery_guard.models import OutboxMessage
from celery_guard.relay import lead as leads
from celery_guard.settle import moves
from celery_guard.settle.models import Effect
from celery_guard.settle.moves import Wish
from celery_guard.settle.provider import Provider
from celery_guard.settle.states import EffectState, Recovery
from celery_guard.testing.clock import pass_time
from tests.project.shop import tasks
from tests.project.without import without

ALLOWED = {(before, move.after) for move in MOVES for before in move.before}
OWNERS = [uuid.UUID(int=n) for n in (1, 2)]
PROVIDER = Provider(recovery=Recovery.RECONCILABLE, timeout=1.0, settle_after=1.0)
KEYS = st.sampled_from(["a", "b", "c"])


class Ledger(RuleBasedStateMachine):
    """Requests, releases, claims, writes by holders old and new, rescues, effects, people."""

    jobs = Bundle("jobs")
    holds = Bundle("holds")
    batches = Bundle("batches")

    @initialize()
    def empty(self) -> None:
        """Nothing is there."""
        for model in (Effect, Job, OutboxMessage):
            model.objects.all()._raw_delete("default")
        self.seen: dict[int, dict[str, Any]] = {}
        self.last = ""

    def _rows(self) -> dict[int, dict[str, Any]]:
        return {row["id"]: row for row in Job.objects.values()}

    @rule(target=jobs, key=KEYS)
    def enqueue(self, key: str) -> Any:
        """By key: a new job, the same one, or the ended one anew."""
        self.last = "enqueue"
        handle = tasks.mark.delay(key)
        return Job.objects.get(public_id=handle.public_id).pk

    @rule(target=batches)
    def release(self) -> Any:
        """A relay marks what is due."""
        self.last = "release"
        owner = uuid.uuid4()
        led = leads.take("default", owner, ["medium"], 30.0)
        batch = release("default", led["medium"], 10, None)
        leads.resign("default", owner)
        return batch if batch else multiple()

    @rule(batch=consumes(batches))
    def publish_failed(self, batch: list[Sending]) -> None:
        """However late: only what is still sent at that very time is taken back."""
        self.last = "unsend"
        before = self._rows()
        unsend("default", batch)
        marks = {sending.id: sending.sent_at for sending in batch}
        for pk, row in self._rows().items():
            same = before[pk]["state"] == State.WAITING and before[pk]["sent_at"] == marks.get(pk)
            if not same or before[pk]["sent_at"] is None:
                assert row == before[pk]

    @rule(target=holds, job=jobs, owner=st.sampled_from(OWNERS))
    def claim(self, job: int, owner: uuid.UUID) -> Any:
        """A message arrives: the claim succeeds exactly for a sent, waiting job."""
        self.last = "claim"
        before = self._rows()[job]
        claimed = claiming.claim("default", NamedJob(job), owner=owner, lease=60.0)
        ready = before["state"] == State.WAITING and before["sent_at"] is not None
        assert (claimed is not None) == ready
        return claimed.hold if claimed else multiple()

    @rule(hold=holds, how=st.sampled_from(["succeed", "retry", "snooze", "fail", "question"]))
    def write(self, hold: Hold, how: str) -> None:
        """By a holder of today or of long ago: it counts exactly while fence and owner are its own."""
        self.last = "write"
        before = self._rows()[hold.job_id]
        mine = (State.RUNNING, hold.fence, hold.owner)
        held = (before["state"], before["fence"], before["owner"]) == mine
        match how:
            case "succeed":
                moved = running.succeed(hold)
            case "retry":
                moved = running.put_back(hold, reason="retry", failures=1)
            case "snooze":
                moved = running.put_back(hold, reason="snooze")
            case "fail":
                moved = running.end(hold, state="failed", reason="permanent", error="{}")
            case _:
                moved = moves.wait_for_answer(hold)
        after = self._rows()[hold.job_id]
        assert moved == held
        assert moved or after == before
        assert after["failures"] - before["failures"] == (how == "retry" and held)

    @rule(hold=holds)
    def send_effect(self, hold: Hold) -> None:
        """An effect is marked as sent by the holder only, and only from where it was."""
        self.last = "effect"
        before = self._rows()[hold.job_id]
        mine = (State.RUNNING, hold.fence, hold.owner)
        held = (before["state"], before["fence"], before["owner"]) == mine
        effect = moves.prepare(hold, Wish(name="charge", provider=PROVIDER), "key")
        state = effect.state
        if state in (EffectState.PREPARED, EffectState.SENT):
            assert moves.mark_sent(hold, effect, PROVIDER) == held
        assert Effect.objects.filter(job_id=hold.job_id).count() == 1

    @rule(hold=holds, how=st.sampled_from(["confirm", "unknown", "not_applied"]))
    def answer_effect(self, hold: Hold, how: str) -> None:
        """Evidence is welcome from anybody; what is settled stays settled."""
        self.last = "effect"
        effect = Effect.objects.filter(job_id=hold.job_id).first()
        if effect is None:
            return
        match how:
            case "confirm":
                moves.confirm("default", effect.pk, "{}")
            case "unknown":
                moves.not_known("default", effect, PROVIDER, "no answer")
            case _:
                moves.not_applied("default", effect.pk)
        after = Effect.objects.get(pk=effect.pk)
        if effect.state in (EffectState.CONFIRMED, EffectState.PREPARED):
            assert after.state == effect.state

    @rule()
    def look_again(self) -> None:
        """Time passes, and the reconciler lets go what is due."""
        self.last = "look_again"
        pass_time("default", 5.0)
        moves.look_again("default", ["high", "medium", "low"], 10)
        self._forget_times()

    @rule(job=jobs)
    def lose(self, job: int) -> None:
        """Whoever runs it is known to be dead."""
        self.last = "rescue"
        owner = self._rows()[job]["owner"]
        if owner is not None:
            rescuing.lose("default", NamedJob(job), owner, limit=3)

    @rule(job=jobs, what=st.sampled_from(["cancel", "replay", "unsend", "park"]))
    def person(self, job: int, what: str) -> None:
        """The admin's moves; and a message known to have died."""
        self.last = what
        match what:
            case "cancel":
                adding.cancel("default", job)
            case "replay":
                adding.replay("default", job)
            case "unsend":
                standing.unsend("default", NamedJob(job))
            case _:
                standing.park("default", NamedJob(job), reason="unknown_task", error="{}")

    def _forget_times(self) -> None:
        for row in self.seen.values():
            row["due_at"] = None

    @invariant()
    def within_the_rules(self) -> None:
        """Fences only grow, states move as the table says, ends are final, keys are unique."""
        if not hasattr(self, "seen"):
            return
        rows = self._rows()
        for pk, row in rows.items():
            if (before := self.seen.get(pk)) is None:
                continue
            assert row["fence"] >= before["fence"]
            assert row["starts"] >= before["starts"]
            if row["state"] != before["state"]:
                assert (before["state"], row["state"]) in ALLOWED
            if before["state"] in TERMINAL and row["state"] != before["state"]:
                assert before["state"] in RERUNNABLE
                assert self.last in ("enqueue", "replay")
                assert row["fence"] > before["fence"]
        keys = [row["key"] for row in rows.values()]
        assert len(keys) == len(set(keys))
        self.seen = rows


BOUNDED = settings(
    max_examples=15,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]


@pytest.mark.bar
def test_no_sequence_of_moves_breaks_the_ledger() -> None:
    """A bounded number of random histories on the real database, shrunk to the shortest breach."""
    run_state_machine_as_test(Ledger, settings=BOUNDED)


def test_a_missing_guard_is_found() -> None:
    """Where a claim takes a job whatever its state, some history soon shows it."""
    # Found is enough here; the shortest such history would take minutes.
    quick = settings(BOUNDED, max_examples=300, phases=[Phase.generate], report_multiple_bugs=False)
    with without("claim"), pytest.raises(AssertionError):
        run_state_machine_as_test(Ledger, settings=quick)
