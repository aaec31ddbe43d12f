"""Rows 1 to 3: what enqueueing costs a request."""

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
    run = _several(bench, jobs=10, seconds=0.15)
    return Reading(values=_one_by_one_and_bulk(run), runs=(run,))


def hundred_jobs(bench: Bench) -> Reading:
    """Row 3; a slice must hold several transactions of a hundred."""
    run = _several(bench, jobs=100, seconds=0.4)
    values = _one_by_one_and_bulk(run)
    values["as a group, commits/s ÷ delay_on_commit"] = run.ratios(RATE, GROUP, BASELINE)
    return Reading(values=values, runs=(run,))


def _several(bench: Bench, *, jobs: int, seconds: float) -> Measured:
    contenders = [BASELINE, GUARD, BULK, GROUP, "limit_insert", "limit_bulk_insert"]
    more = [*PEERS, "procrastinate_batch"]
    return bench.run(
        "enqueue",
        contenders + bench.pick(more, []),
        rounds=bench.pick(24, 10),
        jobs=jobs,
        seconds=seconds,
    )


def _one_by_one_and_bulk(run: Measured) -> dict[str, list[float]]:
    return {
        "one by one, commits/s ÷ delay_on_commit": run.ratios(RATE, GUARD, BASELINE),
        "in bulk, commits/s ÷ delay_on_commit": run.ratios(RATE, BULK, BASELINE),
    }
