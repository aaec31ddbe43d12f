"""Rows 1 to 3: what enqueueing costs a request.

A slice is as long for every contender. With ten or a hundred jobs a transaction one of 0.15 s, or 0.4 s, was
a ratio of a dozen transactions or less, and its quartiles told of single commits. The same readings, put
together two by two or three by three, lie a fifth to a half closer about nearly the same median. So there the
slices are longer and the rounds fewer, and a row is measured for as long as before. For one job a
transaction it made no clear difference.
"""

from benchmarks.bench import Bench, Reading
from benchmarks.spread import added_ratios
from benchmarks.turns import Measured

GUARD, BULK, GROUP = "celery_guard", "celery_guard_bulk", "celery_guard_group"
BASELINE = "delay_on_commit"
PEERS = ("delay", "celery_outbox", "jaiminho", "procrastinate")
LOCKS = ("celery_once", "celery_singleton", "jaiminho_on_commit")
RATE = "tx_per_s"


def one_job(bench: Bench) -> Reading:
    """Row 1."""
    contenders = [BASELINE, "none", "delay", GUARD, "limit_insert"]
    run = bench.run(
        "enqueue",
        dict.fromkeys(contenders + bench.pick([*PEERS, *LOCKS], [])),
        rounds=bench.pick(30, 16),
        jobs=1,
    )
    lines = run.results
    return Reading(
        values={
            "commits/s ÷ delay_on_commit": run.ratios(RATE, GUARD, BASELINE),
            "p95 ÷ delay_on_commit": run.ratios("p95_ms", GUARD, BASELINE),
            "client CPU added per job ÷ plain delay's": added_ratios(
                lines.get(GUARD, []), lines.get("delay", []), lines.get("none", []), "client_cpu_ms"
            ),
        },
        runs=(run,),
    )


def ten_jobs(bench: Bench) -> Reading:
    """Row 2."""
    run = _several(bench, jobs=10, seconds=0.45, rounds=bench.pick(8, 4))
    return Reading(values=_one_by_one_and_bulk(run), runs=(run,))


def hundred_jobs(bench: Bench) -> Reading:
    """Row 3; a slice must hold several transactions of a hundred."""
    run = _several(bench, jobs=100, seconds=0.8, rounds=bench.pick(12, 5))
    values = _one_by_one_and_bulk(run)
    values["as a group, commits/s ÷ delay_on_commit"] = run.ratios(RATE, GROUP, BASELINE)
    return Reading(values=values, runs=(run,))


def _several(bench: Bench, *, jobs: int, seconds: float, rounds: int) -> Measured:
    contenders = [BASELINE, GUARD, BULK, GROUP, "limit_insert", "limit_bulk_insert"]
    more = [*PEERS, "procrastinate_batch"]
    return bench.run(
        "enqueue",
        contenders + bench.pick(more, []),
        rounds=rounds,
        jobs=jobs,
        seconds=seconds,
    )


def _one_by_one_and_bulk(run: Measured) -> dict[str, list[float]]:
    return {
        "one by one, commits/s ÷ delay_on_commit": run.ratios(RATE, GUARD, BASELINE),
        "in bulk, commits/s ÷ delay_on_commit": run.ratios(RATE, BULK, BASELINE),
    }
