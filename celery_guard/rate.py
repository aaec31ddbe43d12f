"""A rate as people write it: ``"50/s"``, ``"1000/h"``, ``"0.5/s"``, ``"100/15m"``."""

from __future__ import annotations

import dataclasses
import math
import re

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)?\s*([smh])\s*")
SHORTEST = 1e-6
"""Seconds between two tokens below which no clock here can tell them apart."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """``count`` in ``per`` seconds; both may be fractions."""

    count: float
    per: float

    @property
    def interval(self) -> float:
        """Seconds from one token to the next."""
        return self.per / self.count

    def __str__(self) -> str:
        return f"{self.count:g}/{self.per:g}s"


def parse_rate(value: object) -> Rate:
    """The rate that ``value`` (text, or a number a second) says.

    :raises ValueError: when it is none, or not above 0.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        count, per = float(value), 1.0
    elif isinstance(value, str) and (found := _TEXT.fullmatch(value)):
        count, per = float(found[1]), float(found[2] or 1) * _UNITS[found[3]]
    else:
        raise ValueError('must be like "50/s", "0.5/s", "100/m", "1000/h"')
    if not (math.isfinite(count) and count > 0 and per > 0):
        raise ValueError("must be above 0")
    if per / count < SHORTEST:
        raise ValueError("must not be above a million a second")
    return Rate(count=count, per=per)
