"""What a row's measurement works with: interleaved runs, in the long or the short form."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from benchmarks import turns
from benchmarks.contenders import registry
from benchmarks.place import Broker, Place
from benchmarks.turns import Measured, Plan, Say

T = TypeVar("T")


class NotHere(Exception):
    """A row can't be measured on this machine; the text says why in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a row's measurement found: bar -> one value a round, and the runs behind them."""

    values: Mapping[str, list[float]]
    runs: tuple[Measured, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One run of the report; `quick` asks for the short form of everything."""

    place: Place
    quick: bool
    say: Say
    timeout: float = field(default=900.0)

    def pick(self, full: T, quick: T) -> T:
        """Return what fits the form asked for."""
        return quick if self.quick else full

    def run(
        self,
        scenario: str,
        contenders: Iterable[str] = (),
        *,
        rounds: int,
        broker: Broker = "redis",
        variants: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None,
        **params: Any,
    ) -> Measured:
        """Run the installed ones of the contenders (and variants, see `Plan`) in turns.

        Raises `NotHere` when the broker is missing.
        """
        if broker == "amqp" and not self.place.amqp_url:
            raise NotHere("no RabbitMQ was found on this machine")
        known = registry()
        plan = Plan(
            scenario=scenario,
            contenders=tuple(name for name in contenders if known[name].installed()),
            variants=variants or {},
            rounds=rounds,
            params=params,
            broker=broker,
            timeout=self.timeout,
        )
        return turns.run(plan, self.place, self.say)
