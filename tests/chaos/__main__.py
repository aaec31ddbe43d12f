"""`python -m tests.chaos`, started by `scripts/chaos`."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery_guard.faults import POINTS
from tests.chaos import soak, table
from tests.chaos.disturbances import DISTURBANCES
from tests.chaos.run import Outcome, Plan, run
from tests.chaos.stage import PAIRS, Missing

SECONDS_A_KILL = 3.0


def main() -> int:
    """Run, print the table, and fail on any loss or duplicate."""
    parser = _parser()
    options = parser.parse_args()
    points = tuple(options.points.split(",")) if options.points else ()
    if unknown := sorted(p for p in points if p not in POINTS and not p.startswith("duty.")):
        parser.error(f"no such point: {', '.join(unknown)}")
    if options.table is not None:
        names = tuple(options.table.split(",")) if options.table else tuple(DISTURBANCES)
        if unknown := sorted(set(names) - DISTURBANCES.keys()):
            parser.error(f"no such disturbance: {', '.join(unknown)}")
        return _disturb(options, names)
    if options.soak:
        return _soak(options)
    plan = Plan(
        pair=options.pair,
        kills=options.kills,
        seed=options.seed,
        seconds=options.seconds or 30 + SECONDS_A_KILL * options.kills,
        rate=options.rate,
        points=points,
        keep=options.logs,
    )
    try:
        outcome = run(plan)
    except Missing as error:
        return _missing(plan.pair, error)
    _print(plan, outcome)
    if options.json:
        print(json.dumps(_as_json(plan, outcome)))
    return 1 if outcome.verdict.faults else 0


def _disturb(options: argparse.Namespace, names: tuple[str, ...]) -> int:
    plan = table.Plan(
        pair=options.pair, names=names, seed=options.seed, rate=options.rate, keep=options.logs
    )
    if options.windows:
        plan = dataclasses.replace(plan, windows=options.windows)
    return _tell(options, plan, table.run, _print_table, _table_as_json)


def _soak(options: argparse.Namespace) -> int:
    plan = soak.Plan(pair=options.pair, seconds=options.soak, seed=options.seed, keep=options.logs)
    return _tell(options, plan, soak.run, _print_soak, _soak_as_json)


def _tell(
    options: argparse.Namespace,
    plan: Any,
    run: Callable[[Any], Any],
    show: Callable[[Any, Any], None],
    as_json: Callable[[Any, Any], dict[str, object]],
) -> int:
    try:
        found = run(plan)
    except Missing as error:
        return _missing(plan.pair, error)
    show(plan, found)
    if options.json:
        print(json.dumps(as_json(plan, found)))
    return 1 if found.faults else 0


def _missing(pair: str, error: Missing) -> int:
    print(f"scripts/chaos: {pair} can't be had here: {error}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="how many processes to kill")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the order of kills, and the provider"
    )
    parser.add_argument("--pair", choices=sorted(PAIRS), default="postgres-redis")
    parser.add_argument("--rate", type=float, default=12.0, help="orders per second")
    parser.add_argument("--seconds", type=float, help="longest time of killing (3 s a kill)")
    parser.add_argument("--points", default="", help="only these points, with commas between")
    parser.add_argument(
        "--table",
        nargs="?",
        const="",
        metavar="NAMES",
        help="disturb servers and processes instead, and compare the rates before and after; "
        f"all of {', '.join(DISTURBANCES)}, or those named, with commas between",
    )
    parser.add_argument(
        "--windows", type=int, help="of 3 s in which each rate is measured (8), with --table"
    )
    parser.add_argument(
        "--soak",
        type=float,
        metavar="SECONDS",
        help="instead run so long at 70 %% of capacity with a disturbance every minute; 7200 is two "
        "hours, under 20 minutes growth can't be told",
    )
    parser.add_argument("--logs", type=Path, help="folder for the processes' logs, kept")
    parser.add_argument("--json", action="store_true", help="the result as JSON in the last line")
    return parser


def _print(plan: Plan, outcome: Outcome) -> None:
    verdict = outcome.verdict
    print(f"{'killed at':32} {'kills':>6} {'jobs':>6} {'lost':>6} {'doubled':>8}")
    for row in verdict.rows:
        print(f"{row.point:32} {row.kills:6} {row.jobs:6} {row.lost:6} {row.doubled:8}")
    for point in outcome.unreached:
        print(f"{point:32} {'not passed while armed':>29}")
    for fault in verdict.faults[:20]:
        print(f"FAULT: {fault}")
    print(
        f"{plan.pair}, seed {plan.seed}: {outcome.kills} kills in {outcome.seconds} s, "
        f"{verdict.jobs} effects counted, {verdict.lost} lost, {verdict.duplicated} duplicated, "
        f"recovered within {verdict.recovery_p95_s} s (p95)"
    )


def _print_table(plan: table.Plan, found: table.Table) -> None:
    heads = ("lasted s", "back s", "before/s", "after/s", "ratio", "spread")
    print(f"{'disturbance':24}" + "".join(f"{head:>10}" for head in heads))
    for row in found.rows:
        back = "never" if row.recovered_s is None else row.recovered_s
        told = (row.lasted_s, back, row.before, row.after, row.ratio, row.spread)
        print(f"{row.name:24}" + "".join(f"{value:>10}" for value in told))
    for name in found.skipped:
        print(f"{name:24}  not run: no C compiler here")
    for fault in found.faults[:20]:
        print(f"FAULT: {fault}")
    print(
        f"{plan.pair}, seed {plan.seed}: {found.verdict.jobs} effects counted, "
        f"{found.verdict.lost} lost, {found.verdict.duplicated} duplicated"
    )


def _print_soak(plan: soak.Plan, found: soak.Soak) -> None:
    print(f"{'disturbance':24}{'worst p95 s':>12}{'back s':>8}")
    for one in found.disturbed:
        worst = "none ended" if one.worst_p95_s is None else one.worst_p95_s
        back = "never" if one.back_s is None else one.back_s
        print(f"{one.name:24}{worst:>12}{back:>8}")
    for name, factor in found.growth.items():
        print(f"{name}: {factor}× from the second quarter to the last")
    for fault in found.faults[:20]:
        print(f"FAULT: {fault}")
    print(
        f"{plan.pair}, seed {plan.seed}: {len(found.disturbed)} disturbances at "
        f"{soak.SHARE:.0%} of {found.capacity} orders/s, clean p95 {found.clean_p95_s} s, "
        f"{found.verdict.jobs} effects counted, {found.verdict.lost} lost, "
        f"{found.verdict.duplicated} duplicated"
    )


def _soak_as_json(plan: soak.Plan, found: soak.Soak) -> dict[str, object]:
    return {
        "pair": plan.pair,
        "seed": plan.seed,
        "jobs": found.verdict.jobs,
        "lost": found.verdict.lost,
        "duplicated": found.verdict.duplicated,
        "capacity": found.capacity,
        "clean_p95_s": found.clean_p95_s,
        "disturbed": [dataclasses.asdict(one) for one in found.disturbed],
        "growth": dict(found.growth),
        "samples": [dataclasses.asdict(one) for one in found.samples],
        "faults": list(found.faults),
    }


def _table_as_json(plan: table.Plan, found: table.Table) -> dict[str, object]:
    return {
        "pair": plan.pair,
        "seed": plan.seed,
        "jobs": found.verdict.jobs,
        "lost": found.verdict.lost,
        "duplicated": found.verdict.duplicated,
        "rows": [{**dataclasses.asdict(row), "ratio": row.ratio} for row in found.rows],
        "skipped": list(found.skipped),
        "faults": list(found.faults),
    }


def _as_json(plan: Plan, outcome: Outcome) -> dict[str, object]:
    verdict = outcome.verdict
    return {
        "pair": plan.pair,
        "seed": plan.seed,
        "kills": outcome.kills,
        "jobs": verdict.jobs,
        "lost": verdict.lost,
        "duplicated": verdict.duplicated,
        "recovery_p95_s": verdict.recovery_p95_s,
        "seconds": outcome.seconds,
        "rows": [dataclasses.asdict(row) for row in verdict.rows],
        "unreached": list(outcome.unreached),
        "faults": list(verdict.faults),
    }


if __name__ == "__main__":
    sys.exit(main())
