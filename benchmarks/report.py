"""`RESULTS.md`: the last report, kept row by row."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import printing
from benchmarks.place import ROOT
from benchmarks.table import Outcome
from benchmarks.turns import Measured

RESULTS = ROOT / "benchmarks" / "RESULTS.md"
HEADING = """# Results

Written by `scripts/bench --report`, which replaces the rows it measures and leaves the others.
Ratios are taken within a round of one interleaved run: the median, and in brackets the quartiles
(the range where a run has fewer than four rounds). A bar is met when the less favourable quartile
meets it. Absolute figures belong to the machine named under each row.
"""
SECTION = re.compile(r"^## Row (\d+)\n", re.MULTILINE)


def keep(
    found: Outcome,
    runs: Sequence[Measured],
    facts: Mapping[str, str],
    *,
    quick: bool,
    path: Path = RESULTS,
) -> None:
    """Replace the row's section in the report."""
    sections = _sections(path.read_text() if path.exists() else "")
    sections[found.row.number] = section(found, runs, facts, quick=quick)
    parts = [f"## Row {number}\n{sections[number]}" for number in sorted(sections)]
    path.write_text("\n".join([HEADING, *parts]))


def section(
    found: Outcome, runs: Sequence[Measured], facts: Mapping[str, str], *, quick: bool
) -> str:
    """Return the body of one row's section."""
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    made = f"{when}{', short form' if quick else ''}. " + ". ".join(
        f"{name}: {fact}" for name, fact in facts.items()
    )
    tables = "\n".join(printing.run(run) for run in runs)
    return f"{printing.outcome(found)}\n{tables}\n\n{made}\n"


def _sections(text: str) -> dict[int, str]:
    _, *parts = SECTION.split(text)
    return {
        int(number): body.rstrip("\n") + "\n"
        for number, body in zip(parts[::2], parts[1::2], strict=True)
    }
