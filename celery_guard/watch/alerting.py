"""What a file of rules is made of: recorded series, alerts, and the burn rates of an error budget."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A series that other rules are made of."""

    name: str
    expr: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """``severity`` is ``page`` (now) or ``ticket`` (by day); the name is the runbook's anchor."""

    name: str
    expr: str
    wait: str
    severity: str
    summary: str

    @property
    def anchor(self) -> str:
        """The alert's place on the page that tells what to do."""
        return self.name.lower()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """So much of the budget, as a factor, in both of two windows."""

    name: str
    factor: float
    long: str
    short: str
    wait: str
    severity: str


BURNS = (
    Burn(name="FastBurn", factor=14.4, long="1h", short="5m", wait="2m", severity="page"),
    Burn(name="SlowBurn", factor=6, long="6h", short="30m", wait="5m", severity="page"),
    Burn(name="TicketBurn", factor=3, long="1d", short="2h", wait="15m", severity="ticket"),
)
"""Made for a budget of 30 days."""
WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d")


def least(burn: Burn, slo: float) -> str:
    """The share from which ``burn`` counts, for what is to be right in ``slo`` per cent."""
    # Wrong all the time is 1; a threshold above that would never be passed.
    return f"{min(burn.factor * (1 - slo / 100), 0.99):.4g}"
