"""What every command asks for that sets something at run time: how long, why, who."""

from __future__ import annotations

import getpass
import re
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from typing import Any

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def add_terms(parser: ArgumentParser, *, what: str, times: str) -> None:
    """Add the options ``--for``, ``--reason`` and ``--by``."""
    parser.add_argument("--for", dest="time", help=f"how long: {times}")
    parser.add_argument("--reason", default="", help=f"why; shown wherever {what} is")
    parser.add_argument("--by", default="", help="who (default: the user of this shell)")


def terms_faults(options: Mapping[str, Any]) -> Iterator[str]:
    """What is not said, or not so that it can be understood."""
    if options["time"] is None:
        yield "say how long: --for 2h"
    elif seconds_in(options["time"]) is None:
        yield f"--for {options['time']!r} is no time; 90s, 30m, 2h and 1d are"
    if not options["reason"].strip():
        yield 'say why: --reason "…"'


def seconds_in(text: str) -> float | None:
    """The seconds of ``30m``, ``2h``, ``90``; None for what is no such time."""
    form = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    return float(form[1]) * _UNITS[form[2]] if form else None


def whoever() -> str:
    """The user of this shell."""
    try:
        return getpass.getuser()
    # A container may run under a number without a name.
    except (KeyError, OSError):
        return "manage.py"
