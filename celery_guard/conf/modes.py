"""The modes of a task: how much of the guard its calls get."""

from __future__ import annotations

import dataclasses
import difflib
import enum
import re


class Mode(enum.StrEnum):
    """How much of the guard the calls of a task get."""

    OFF = "off"
    OBSERVE = "observe"
    COMPARE = "compare"
    CANARY = "canary"
    ON = "on"

    @property
    def guards(self) -> bool:
        """Whether a call under this mode becomes a job."""
        return self in (Mode.CANARY, Mode.ON)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The mode of a task, and the percentage of its keys that ``canary`` selects."""

    mode: Mode = Mode.ON
    percent: float = 100.0

    def __str__(self) -> str:
        return f"{self.mode}:{self.percent:g}" if self.mode is Mode.CANARY else str(self.mode)


ON = Stage()
_CANARY = re.compile(r"canary:(\d+(?:\.\d+)?)%?")


def parse_stage(value: object) -> Stage:
    """The stage that ``"on"``, ``"off"``, ``"canary:10"`` and so on say.

    :raises ValueError: saying what would fit.
    """
    text = str(value) if isinstance(value, str) else ""
    if found := _CANARY.fullmatch(text):
        percent = float(found[1])
        if not 0 < percent <= 100:
            raise ValueError("must name a percentage above 0 and at most 100")
        return Stage(mode=Mode.CANARY, percent=percent)
    if text in set(Mode) - {Mode.CANARY}:
        return Stage(mode=Mode(text))
    raise ValueError(f'must be "off", "observe", "compare", "canary:10" or "on"{_meant(text)}')


def _meant(text: str) -> str:
    if text.startswith("canary"):
        return ", with the percentage of the keys after a colon"
    close = difflib.get_close_matches(text, [str(mode) for mode in Mode], n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
