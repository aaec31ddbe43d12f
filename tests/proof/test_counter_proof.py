"""Each invariant holds; and with its guard taken out, the check of it fails."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project.without import GUARDS, without
from tests.proof import invariants
from tests.proof.test_chaos import chaos

BROKEN_BY: dict[str, Callable[[], None]] = {
    "claim": invariants.one_holder,
    "fence": invariants.old_fences_are_void,
    "outbox": invariants.rolled_back_requests_leave_nothing,
    "unsend": invariants.what_was_not_sent_is_due_again,
    "finish": invariants.business_writes_are_committed_once,
    "owed": invariants.who_waits_is_told,
    "intent": invariants.providers_apply_once,
    "budget": invariants.patience_uses_nothing_up,
    "lease": invariants.live_attempts_are_left_alone,
    "rescue": invariants.dead_attempts_are_rescued,
    "heartbeat": invariants.heartbeats_keep_leases,
    "replay": invariants.keys_are_used_once,
}
KEPT = {"1", "2", "3", "5", "6", "7", "9"}
"""The invariants that the ledger keeps by now."""


def test_every_guard_and_every_invariant_has_its_proof() -> None:
    """No switch without a check, and each invariant is the subject of at least one."""
    assert BROKEN_BY.keys() == GUARDS.keys()
    numbers = {str(check.__doc__).partition(".")[0] for check in BROKEN_BY.values()}
    assert numbers == KEPT


@pytest.mark.bar
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("guard", BROKEN_BY)
def test_an_invariant_holds(guard: str, scratch: Path) -> None:
    """With all guards in place the scenario finds no breach."""
    BROKEN_BY[guard]()


@pytest.mark.bar
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("guard", BROKEN_BY)
def test_an_invariant_breaks_without_its_guard(guard: str, scratch: Path) -> None:
    """The same scenario finds the breach when the guard is taken out."""
    with without(guard), pytest.raises(AssertionError):
        BROKEN_BY[guard]()


@pytest.mark.bar
@pytest.mark.timeout(300)
def test_the_count_from_outside_finds_a_second_charge() -> None:
    """Workers that don't mark an effect as sent, killed between call and answer: the run fails."""
    ran = chaos(
        *("--pair", "postgres-redis", "--points", "settle.answered", "--kills", "10"),
        GUARD_TEST_WITHOUT="intent",
    )
    told = json.loads(ran.stdout.splitlines()[-1])
    assert (ran.returncode, told["lost"]) == (1, 0), ran.stderr
    assert told["duplicated"] > 0
