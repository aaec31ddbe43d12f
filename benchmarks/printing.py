"""Results as text (Markdown tables) and as JSON objects."""

from collections.abc import Mapping
from typing import Any

from benchmarks import scenarios, spread
from benchmarks.contenders import registry
from benchmarks.spread import Spread
from benchmarks.table import Bar, Outcome
from benchmarks.turns import Measured

VERDICTS = {True: "met", False: "missed", None: "reported"}


def number(value: float) -> str:
    """Return a figure with as many digits as mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def shown(seen: Spread) -> str:
    """Return the median and the quartiles (the range where there are few values)."""
    return f"{number(seen.median)} [{number(seen.low)}–{number(seen.high)}]"


def outcome(found: Outcome) -> str:
    """Return a row's lines: what was seen, the bar, and whether it was met."""
    row = found.row
    title = f"Row {row.number}: {row.scenario}"
    if row.absent:
        return f"\n{title} — {row.absent}"
    lines = [f"\n{title}", "", "| | seen | bar | |", "|---|---|---|---|"]
    lines += [_bar(bar, found.seen.get(bar.name)) for bar in row.bars]
    return "\n".join(lines)


def _bar(bar: Bar, seen: Spread | None) -> str:
    if seen is None:
        return f"| {bar.name} | – | {bar} | not measured |"
    return f"| {bar.name} | {shown(seen)} | {bar} | {VERDICTS[bar.met(seen)]} |"


def run(measured: Measured) -> str:
    """Return the table of one interleaved run: every contender, beside the first."""
    scenario = scenarios.load(measured.plan.scenario)
    if getattr(scenario, "ACROSS", False):
        return _across(measured)
    main = scenario.MAIN
    baseline = next(iter(measured.results), "")
    lines = [
        f"\n{_title(measured)}\n",
        f"| contender | {main} | ÷ {baseline} | medians |",
        "|---|---|---|---|",
    ]
    for label, rounds in measured.results.items():
        values = spread.values(rounds, main)
        if not values:
            lines.append(f"| {label} | failed | – | |")
            continue
        ratio = measured.ratios(main, label, baseline)
        beside = shown(spread.spread(ratio)) if ratio else "–"
        lines.append(
            f"| {label} | {shown(spread.spread(values))} | {beside} | {_rest(rounds, main)} |"
        )
    return "\n".join(lines)


def _across(measured: Measured) -> str:
    labels = list(measured.results)
    medians = {label: spread.medians(measured.results[label]) for label in labels}
    lines = [
        f"\n{_title(measured)}\n",
        f"| medians | {' | '.join(labels)} | the last ÷ the first |",
        "|---|" + "---|" * (len(labels) + 1),
    ]
    for name in dict.fromkeys(name for found in medians.values() for name in found):
        cells = [number(medians[one][name]) if name in medians[one] else "–" for one in labels]
        ratio = measured.ratios(name, labels[-1], labels[0])
        beside = shown(spread.spread(ratio)) if ratio else "–"
        lines.append(f"| {name} | {' | '.join(cells)} | {beside} |")
    return "\n".join(lines)


def _title(measured: Measured) -> str:
    plan = measured.plan
    params = ", ".join(f"{name} {value}" for name, value in plan.params.items())
    return f"`{plan.scenario}` on {plan.broker}, {plan.rounds} rounds: {params or 'defaults'}"


def _rest(rounds: spread.Rounds, main: str) -> str:
    medians: Mapping[str, float] = spread.medians(rounds)
    return ", ".join(f"{name} {number(value)}" for name, value in medians.items() if name != main)


def as_object(found: Outcome) -> dict[str, Any]:
    """Return a row as one JSON object.

    `value`, `bar` and `low`/`high` are those of the part that decides: the furthest below its
    bar. `met` speaks for all parts, and `parts` lists them.
    """
    row, bar = found.row, found.deciding()
    deciding = found.seen[bar.name] if bar else None
    return {
        "row": row.number,
        "scenario": row.scenario,
        "value": deciding.median if deciding else None,
        "bar": bar.bound if bar else row.bars[0].bound,
        "met": found.met,
        "part": bar.name if bar else row.bars[0].name,
        "parts": [_part(one, found.seen.get(one.name)) for one in row.bars],
        **({"note": row.absent} if row.absent else {}),
    }


def _part(bar: Bar, seen: Spread | None) -> dict[str, Any]:
    spread_of = (
        {"value": seen.median, "low": seen.low, "high": seen.high, "rounds": seen.count}
        if seen
        else {"value": None}
    )
    return {
        "name": bar.name,
        **spread_of,
        "bar": bar.bound,
        "wanted": str(bar),
        "met": bar.met(seen) if seen else (None if bar.bound is None else False),
    }


def contenders() -> str:
    """Return who can take part, where, and who is not installed."""
    return "\n".join(
        f"{name:24}{' '.join(sorted(one.scenarios))}{'' if one.installed() else '  (not installed)'}"
        for name, one in registry().items()
    )
