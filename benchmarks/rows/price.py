"""Row 11: what limits, tenants and admission cost a site that has them all."""

from benchmarks.bench import Bench, Reading

LIMITED, BASELINE = "celery_guard_limited", "celery_guard"


def everything_on(bench: Bench) -> Reading:
    """Row 11, beside a million finished rows in both forms."""
    run = bench.run("price", [BASELINE, LIMITED], rounds=bench.pick(60, 20))
    return Reading(
        values={
            "enqueue": run.ratios("tx_per_s", LIMITED, BASELINE),
            "worker": run.ratios("tasks_per_s", LIMITED, BASELINE),
            "a job, asked for and run": run.ratios("jobs_per_s", LIMITED, BASELINE),
        },
        runs=(run,),
    )
