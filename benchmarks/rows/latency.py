"""Row 7: how soon a job starts on an idle system."""

from benchmarks.bench import Bench, Reading

GUARD, BASELINE = "celery_guard", "delay_on_commit"


def idle_system(bench: Bench) -> Reading:
    """Row 7."""
    more = ["limit_pipeline", "procrastinate", "celery_outbox", "jaiminho"]
    run = bench.run(
        "latency",
        [BASELINE, GUARD, *bench.pick(more, [])],
        rounds=bench.pick(5, 2),
        samples=bench.pick(25, 15),
    )
    return Reading(
        values={
            "p50 ÷ delay_on_commit": run.ratios("p50_ms", GUARD, BASELINE),
            "p95 ÷ delay_on_commit": run.ratios("p95_ms", GUARD, BASELINE),
        },
        runs=(run,),
    )
