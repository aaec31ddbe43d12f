"""The command line of `scripts/bench`."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import servers
from benchmarks import machine, printing, report, scenarios, turns
from benchmarks.bench import Bench, NotHere
from benchmarks.contenders import registry
from benchmarks.rows import MEASURES
from benchmarks.spread import spread
from benchmarks.stage import Refused, stage
from benchmarks.table import ROWS, Outcome, Row, rows
from benchmarks.turns import Measured, Plan

QUICK_TIMEOUT, TIMEOUT = 240.0, 900.0
NEEDS_RABBITMQ = {5}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for and return the exit code.

    A bar that is missed is a result, not a failure: the code is 0 then too.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` blocks run
    options = _parser().parse_args(arguments)
    try:
        if options.list:
            print(printing.contenders())
        elif options.scenario:
            _free_run(options)
        else:
            _report(options)
    except (Refused, servers.ServerUnavailable, ValueError) as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--rows", type=_numbers, default=[], help="such as 1,4,7; all by default")
    parser.add_argument("--quick", action="store_true", help="a short form: minutes, and rougher")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    parser.add_argument("--report", action="store_true", help="keep it in benchmarks/RESULTS.md")
    parser.add_argument("--list", action="store_true", help="who can take part")
    free = parser.add_argument_group("a run of your own instead of the rows")
    free.add_argument("--scenario", choices=scenarios.NAMES)
    free.add_argument("--contenders", type=lambda text: text.split(","), default=["none"])
    free.add_argument("--rounds", type=int, default=0)
    free.add_argument("--broker", choices=("redis", "amqp"), default="redis")
    free.add_argument("--sync-commit", choices=("on", "off"), default="on")
    free.add_argument("--set", nargs="*", default=[], type=_pair, metavar="NAME=VALUE")
    return parser


def _numbers(text: str) -> list[int]:
    numbers = [int(one) for one in text.split(",")]
    if unknown := [one for one in numbers if one not in ROWS]:
        raise argparse.ArgumentTypeError(f"no row {unknown[0]}; there are 1 to {max(ROWS)}")
    return numbers


def _pair(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def say(text: str) -> None:
    """Show progress; results alone go to standard output."""
    print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _report(options: argparse.Namespace) -> None:
    chosen = rows(*options.rows)
    say(f"rows {', '.join(str(row.number) for row in chosen)}: looking for servers")
    with stage(rabbitmq=any(row.number in NEEDS_RABBITMQ for row in chosen)) as place:
        timeout = QUICK_TIMEOUT if options.quick else TIMEOUT
        bench = Bench(place=place, quick=options.quick, say=say, timeout=timeout)
        facts = machine.facts(place)
        for row in chosen:
            outcome, runs = _measure(row, bench)
            _show(outcome, runs, options)
            if options.report:
                report.keep(outcome, runs, facts, quick=options.quick)


def _measure(row: Row, bench: Bench) -> tuple[Outcome, tuple[Measured, ...]]:
    bench.say(f"row {row.number}: {row.scenario}")
    try:
        reading = MEASURES[row.number](bench)
    except NotHere as reason:
        return Outcome(row=replace(row, absent=f"not measured: {reason}"), seen={}), ()
    seen = {name: spread(values) for name, values in reading.values.items() if values}
    return Outcome(row=row, seen=seen), reading.runs


def _show(outcome: Outcome, runs: Sequence[Measured], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(printing.as_object(outcome), ensure_ascii=False), flush=True)
        return
    print(printing.outcome(outcome), flush=True)
    for run in runs:
        print(printing.run(run), flush=True)


def _free_run(options: argparse.Namespace) -> None:
    known = registry()
    if unknown := [name for name in options.contenders if name not in known]:
        raise ValueError(f"no contender {unknown[0]}; --list names them")
    sliced = scenarios.sliced(scenarios.load(options.scenario))
    plan = Plan(
        scenario=options.scenario,
        contenders=tuple(options.contenders),
        rounds=options.rounds or (40 if sliced else 3),
        params=dict(options.set),
        broker=options.broker,
    )
    with stage(rabbitmq=options.broker == "amqp") as opened:
        place = replace(opened, synchronous_commit=options.sync_commit)
        measured = turns.run(plan, place, say)
    print(printing.run(measured))
