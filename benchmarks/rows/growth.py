"""Row 12: the same work beside more and more history."""

from benchmarks.bench import Bench, Reading
from benchmarks.turns import Measured

SIZES = (1_000, 100_000, 1_000_000)
QUICK_SIZES = (1_000, 100_000)


def beside_history(bench: Bench) -> Reading:
    """Row 12; the short form goes to 100,000 rows."""
    in_process, relay = (
        _run(bench, "growth", "celery_guard"),
        _run(bench, "relay", "celery_guard_open"),
    )
    return Reading(
        values={
            _bar("enqueue"): _slowdown(in_process, "tx_per_s"),
            _bar("claim and finish"): _slowdown(in_process, "tasks_per_s"),
            _bar("relay"): _slowdown(relay, "rows_per_s"),
        },
        runs=(in_process, relay),
    )


def _run(bench: Bench, scenario: str, contender: str) -> Measured:
    sizes = bench.pick(SIZES, QUICK_SIZES)
    return bench.run(
        scenario,
        variants={f"{size:,} finished": (contender, {"done": size}) for size in sizes},
        rounds=bench.pick(4, 2),
    )


def _slowdown(run: Measured, metric: str) -> list[float]:
    least, *_, most = run.results
    return run.ratios(metric, least, most)


def _bar(work: str) -> str:
    return f"{work}, rate beside the least ÷ beside the most"
