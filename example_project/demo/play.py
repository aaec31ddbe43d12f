"""The story: orders come in, things go wrong, all is settled, and the witnesses are asked."""

import dataclasses
import time

from demo.chaos import Chaos, Damage, bad_days
from demo.clients import Customers
from demo.programs import until
from demo.settle import settle
from demo.stage import Stage
from demo.tally import Tally, tally
from demo.till import Till
from demo.voice import Voice
from demo.witness import WHO, Witness

PLACING_SECONDS = 18.0
PATIENCE = 60.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What came of it."""

    asked: int
    refused: tuple[str, ...]
    tally: Tally
    damage: Damage
    repeats: dict[str, int]
    provider: dict[str, int]
    stale_products: int
    settled: bool
    unfinished: int

    @property
    def good(self) -> bool:
        """Whether everything that was asked for happened exactly once."""
        return not (
            self.tally.lost
            or self.tally.duplicated
            or self.stale_products
            or self.unfinished
            or self.tally.orders < self.asked
        )


def play(on: Stage, voice: Voice, *, orders: int, seed: int) -> Story:
    """Tell the story on a stage that is up."""
    till = Till(on.provider_port)
    till.expect(bad_days(orders, seed))
    customers = Customers(on.web_port, total=orders, rate=orders / PLACING_SECONDS, seed=seed)
    chaos = Chaos(on, till)
    with Witness(on, till) as seeing:
        with voice.step("First jobs: thumbnails of all products"):
            until("waiting for the first jobs", lambda: not seeing.unfinished())
        customers.start()
        try:
            _place(customers, chaos, voice, orders)
        finally:
            customers.stop()
        owed = len(customers.accepted) * len(WHO)
        with voice.count("Effects seen from outside", owed) as tell:
            settled = settle(seeing, owed, tell, PATIENCE)
        return _story(customers, chaos, seeing, till, asked=orders, settled=settled)


def _place(customers: Customers, chaos: Chaos, voice: Voice, orders: int) -> None:
    def wipe_in_a_rush() -> None:
        customers.rush(max(6, orders // 8))
        chaos.wipe_broker()

    deeds = [(0.25, chaos.kill_worker), (0.6, wipe_in_a_rush)]
    with voice.count("Orders over HTTP", orders) as tell:
        while deeds or not customers.done():
            tell(len(customers.accepted))
            if deeds and (customers.done() or len(customers.accepted) >= deeds[0][0] * orders):
                deeds.pop(0)[1]()
            time.sleep(0.02)
        tell(len(customers.accepted))
    chaos.await_worker()


def _story(
    customers: Customers, chaos: Chaos, seeing: Witness, till: Till, *, asked: int, settled: bool
) -> Story:
    committed = {order.order_id: order.committed_at for order in customers.accepted}
    return Story(
        asked=asked,
        refused=tuple(customers.refused),
        tally=tally(committed, seeing.seen(), WHO),
        damage=chaos.damage,
        repeats=seeing.repeats(),
        provider=till.counts(),
        stale_products=seeing.stale_products(),
        settled=settled,
        unfinished=seeing.unfinished(),
    )
