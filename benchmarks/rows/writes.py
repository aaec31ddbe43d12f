"""Row 13: what one guarded job writes, and what an old transaction does to claims."""

from benchmarks.bench import Bench, Reading

GUARD = "celery_guard"


def per_job(bench: Bench) -> Reading:
    """Row 13."""
    run = bench.run("writes", [GUARD], rounds=bench.pick(3, 1), jobs=bench.pick(50_000, 3_000))
    names = {
        "statements": "statements_per_job",
        "WAL": "wal_bytes_per_job",
        "dead tuples": "dead_tuples_per_job",
        "claim p95 beside an idle transaction ÷ clean": "p95_beside_idle_transaction",
    }
    values = {bar: run.values(metric, GUARD) for bar, metric in names.items()}
    return Reading(values=values, runs=(run,))
