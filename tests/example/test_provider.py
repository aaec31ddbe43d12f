"""The payment provider of the demo: what it promises, and how it misbehaves when told to."""

import threading

import pytest

from demo.programs import Programs, until
from demo.provider.faults import Fault, Kind
from servers.processes import listens
from tests.example.callers import Payer


def test_one_key_is_one_charge(payer: Payer) -> None:
    """The same key gives the same stored answer and applies nothing a second time."""
    first = payer.charge("k1")
    again = payer.charge("k1")
    assert first[0] == again[0] == 201
    assert first[1] == again[1]
    assert "Idempotent-Replayed" not in first[2]
    assert again[2]["Idempotent-Replayed"] == "true"
    assert payer.till.counts()["applied"] == 1
    assert payer.till.counts()["repeats"] == 1


def test_one_key_at_once_is_one_charge(payer: Payer) -> None:
    """Eight requests under one key at the same moment apply one charge and get one answer."""
    answers: list[object] = []
    gate = threading.Barrier(8)

    def ask() -> None:
        gate.wait()
        answers.append(payer.charge("k1")[1]["id"])

    askers = [threading.Thread(target=ask) for _ in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(answers) == 8
    assert len(set(answers)) == 1
    assert payer.till.counts()["applied"] == 1


def test_a_key_is_bound_to_its_charge(payer: Payer) -> None:
    """A key that stands for one charge is refused for another, and nothing is applied."""
    payer.charge("k1", cents=500)
    assert payer.charge("k1", cents=501)[0] == 422
    assert payer.charge("k1", order=2)[0] == 422
    assert payer.till.counts()["applied"] == 1


def test_no_key_no_charge(payer: Payer) -> None:
    """A charge without a key is refused."""
    assert payer.charge("")[0] == 400
    assert payer.till.counts()["applied"] == 0


@pytest.mark.parametrize(
    ("kind", "status", "applied"),
    [
        (Kind.SLOW, 201, 1),
        (Kind.LOST, 0, 1),
        (Kind.THROTTLE, 429, 0),
        (Kind.FAIL, 500, 0),
        (Kind.REFUSE, 402, 0),
    ],
)
def test_each_fault_is_met_once(payer: Payer, kind: Kind, status: int, applied: int) -> None:
    """A fault shapes one request; the next one under the same key finds what really happened."""
    payer.till.expect([Fault(kind=kind, seconds=0.3)])
    assert payer.charge("k1")[0] == status
    assert payer.till.counts()["applied"] == applied
    assert payer.till.counts()[kind] == 1
    assert payer.charge("k1")[0] == 201
    assert payer.till.counts()["applied"] == 1


def test_a_throttled_caller_is_told_when_to_come_back(payer: Payer) -> None:
    """429 carries Retry-After in whole seconds."""
    payer.till.expect([Fault(kind=Kind.THROTTLE, seconds=2)])
    assert payer.charge("k1")[2]["Retry-After"] == "2"


def test_faults_can_jump_the_queue(payer: Payer) -> None:
    """A fault for right now is met before those that were announced earlier."""
    payer.till.expect([Fault(kind=Kind.FAIL)])
    payer.till.expect([Fault(kind=Kind.REFUSE)], first=True)
    assert [payer.charge("k1")[0] for _ in range(3)] == [402, 500, 201]


def test_calm_takes_the_coming_faults_away(payer: Payer) -> None:
    """After the forecast is cleared no fault is left."""
    payer.till.expect([Fault(kind=Kind.FAIL)] * 3)
    payer.till.calm()
    assert payer.charge("k1")[0] == 201


def test_the_memory_outlives_the_process(payer: Payer, programs: Programs) -> None:
    """A provider that is killed and started again knows every charge and every key."""
    receipt = payer.charge("k1")[1]
    payer.program.kill()
    again = programs.start("provider", payer.argv)
    until("waiting for the provider", lambda: listens(payer.port), again)
    assert payer.charge("k1")[1] == receipt
    assert [order for order, _ in payer.till.charges()] == [1]
