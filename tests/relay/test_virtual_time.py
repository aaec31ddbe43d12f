"""Who has had how much of a lane, on numbers alone."""

import dataclasses
import heapq
from collections import Counter, deque

import pytest

from celery_guard.relay.shares import Claimant, share
from celery_guard.relay.virtual_time import REMEMBERED, VirtualTime


class Lane:
    """Workers that take what was sent in its order, and a leader that fills a window of 1.5 slots."""

    def __init__(self, costs: dict[str, float], slots: int, weights: dict[str, float]) -> None:
        self.costs, self.slots, self.weights = costs, slots, weights
        self.time = VirtualTime()
        self.sent: deque[str] = deque()
        self.running: list[tuple[float, str]] = []
        self.now = 0.0
        self.busy: Counter[str] = Counter()
        self.held: Counter[str] = Counter()

    def claimant(self, name: str) -> Claimant:
        """As the leader sees a tenant, which learns costs from what was sent."""
        cost = self.time.cost_of(name, 1.0)
        return Claimant(held=self.held[name], cost=cost, weight=self.weights.get(name, 1.0))

    def look(self, waiting: set[str]) -> dict[str, int]:
        """One look of the leader; all of ``waiting`` have a backlog."""
        self.time.begin({name: self.claimant(name) for name in self.held if self.held[name]})
        claimants = {
            name: dataclasses.replace(self.claimant(name), mark=self.time.mark_of(name))
            for name in waiting
        }
        window = self.slots + max(2, self.slots // 2)
        given = share(window - sum(self.held.values()), claimants)
        self.time.give(given, claimants)
        for name, count in given.items():
            self.sent.extend([name] * count)
            self.held[name] += count
            self.time.charge(name, self.weights.get(name, 1.0), [self.costs[name]] * count)
        return given

    def run(self, seconds: float, waiting: set[str]) -> Counter[str]:
        """That much time, with a look whenever a job ends; whose jobs the workers were busy with."""
        before, until = Counter(self.busy), self.now + seconds
        self.look(waiting)
        while self.now < until:
            while self.sent and len(self.running) < self.slots:
                name = self.sent.popleft()
                heapq.heappush(self.running, (self.now + self.costs[name], name))
                self.busy[name] += int(1000 * self.costs[name])
            self.now, name = heapq.heappop(self.running)
            self.held[name] -= 1
            self.look(waiting)
        return self.busy - before


@pytest.mark.parametrize("slots", [1, 4, 40])
def test_long_jobs_get_no_more_of_the_workers_time(slots: int):
    """Ten-second jobs beside one-second jobs: an hour is halved, however many slots there are."""
    lane = Lane({"slow": 10.0, "fast": 1.0}, slots, {})
    busy = lane.run(3600, {"slow", "fast"})
    assert busy["slow"] == pytest.approx(busy["fast"], rel=0.1)


def test_weights_are_parts_of_the_time():
    """Three times the weight is three times the time, whatever the jobs cost."""
    lane = Lane({"gold": 10.0, "other": 1.0}, 4, {"gold": 3.0})
    busy = lane.run(3600, {"gold", "other"})
    assert busy["gold"] == pytest.approx(3 * busy["other"], rel=0.1)


def test_a_newcomer_is_next_and_catches_up_with_what_others_hold():
    """All places go to it until it holds as much as whoever was alone."""
    lane = Lane({"a": 1.0, "b": 1.0}, 8, {})
    lane.run(100, {"a"})
    lane.held["a"] -= len(lane.sent)
    lane.sent.clear()
    room = 12 - lane.held["a"]
    assert lane.look({"a", "b"}) == {"b": room}


def test_time_alone_is_no_debt():
    """Whoever used what nobody wanted shares evenly from then on."""
    lane = Lane({"a": 1.0, "b": 1.0}, 4, {})
    lane.run(3600, {"a"})
    busy = lane.run(600, {"a", "b"})
    assert busy["a"] == pytest.approx(busy["b"], rel=0.1)


def test_time_away_is_no_saving():
    """Whoever was away does not get all workers for as long when it is back."""
    lane = Lane({"a": 1.0, "b": 1.0}, 4, {})
    lane.run(60, {"a", "b"})
    lane.run(3600, {"a"})
    busy = lane.run(60, {"a", "b"})
    assert busy["a"] == pytest.approx(busy["b"], rel=0.2)


def test_a_new_leader_begins_with_what_is_held():
    """No memory: marks are the holdings, as if nothing had been before."""
    time = VirtualTime()
    time.begin({"a": Claimant(held=6, cost=2), "b": Claimant(held=3, weight=3)})
    assert [time.mark_of(name) for name in "abc"] == [12, 1, 0]


def test_those_who_are_gone_are_forgotten():
    """Thousands of tenants that come once leave nothing behind."""
    time = VirtualTime()
    for n in range(3 * REMEMBERED):
        time.begin({f"t{n}": Claimant(held=1)})
        time.charge(f"t{n}", 1.0, [1.0])
        time.give({"steady": 1}, {"steady": Claimant(held=0, mark=float(n))})
    time.begin({"steady": Claimant(held=1)})
    assert len(time._marks) < 10
    assert len(time._costs) <= REMEMBERED + 1
