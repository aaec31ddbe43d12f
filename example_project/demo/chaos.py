"""What goes wrong during the demo: a provider with bad days, a killed worker, a wiped broker."""

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable
from pathlib import Path

import redis

from demo.provider.faults import Fault, Kind
from demo.stage import LANES, Stage
from demo.till import Till

WIPE = Path(__file__).with_name("wipe.lua").read_text()
QUEUED = 3
PATIENCE = 12.0


@dataclasses.dataclass(slots=True, kw_only=True)
class Damage:
    """What was done; counted where it was done."""

    kills: int = 0
    charges_in_flight: int = 0
    wipes: int = 0
    messages_wiped: int = 0


def bad_days(total: int, seed: int) -> list[Fault]:
    """Faults for the first ``total`` charge requests: a third of them meet one.

    Silence outlasts the shop's time-out for a charge (1 second), so that the shop never hears of a
    charge that was applied.
    """
    lost, busy, broken = max(1, total // 20), max(1, total // 10), max(1, total // 20)
    faults = [
        *[Fault(kind=Kind.LOST, seconds=1.3)] * lost,
        *[Fault(kind=Kind.THROTTLE, seconds=1)] * busy,
        *[Fault(kind=Kind.FAIL)] * broken,
        *[Fault(kind=Kind.SLOW, seconds=0.2)] * busy,
    ]
    faults += [Fault(kind=Kind.NONE)] * (total - len(faults))
    random.Random(seed).shuffle(faults)
    return faults


class Chaos:
    """Does the damage, from the thread that owns the programs."""

    def __init__(self, on: Stage, till: Till) -> None:
        self._on, self._till = on, till
        self.damage = Damage()

    def kill_worker(self) -> None:
        """Kill the worker that charges, with -9 and its children, while a charge is under way.

        The charge is applied and nobody lives to hear of it. A new worker is started; customers
        do not wait for it.
        """
        self._till.expect([Fault(kind=Kind.SLOW, seconds=0.6)] * 2, first=True)
        self.damage.charges_in_flight += _watch(lambda: self._till.counts()["in_flight"], 1)
        self._on.workers["high"].kill()
        self.damage.kills += 1
        self._on.start_worker("high")

    def await_worker(self) -> None:
        """Wait until the new worker takes jobs, or say why it does not."""
        self._on.await_worker("high", generation=1 + self.damage.kills)

    def wipe_broker(self) -> None:
        """Empty the broker while messages wait in it: with a slow provider they pile up."""
        self._till.expect([Fault(kind=Kind.SLOW, seconds=0.6)] * 8, first=True)
        word = "FLUSHALL" if self._on.redis_is_ours else "FLUSHDB"
        with contextlib.closing(redis.Redis.from_url(self._on.redis_url)) as client:
            wipe = client.register_script(WIPE)
            lost = _watch(lambda: int(wipe(list(LANES), [QUEUED, word])), QUEUED)
            if lost < QUEUED:
                lost = int(wipe(list(LANES), [0, word]))
        self.damage.wipes += 1
        self.damage.messages_wiped += lost


def _watch(look: Callable[[], int], at_least: int) -> int:
    deadline = time.monotonic() + PATIENCE
    while (seen := look()) < at_least and time.monotonic() < deadline:
        time.sleep(0.005)
    return seen
