"""Row 11: what limits, tenants and admission cost a site that has them all."""

from benchmarks.bench import Bench, Reading

LIMITED, BASELINE = "celery_guard_limited", "celery_guard"


def everything_on(bench: Bench) -> Reading:
    """Row 11, beside a million finished rows in both forms.

    A slice asks for a whole second, as long as a process keeps what it has counted and read: after the
    other's turn that is over, so a shorter slice would pay three times what a busy process pays.
    """
    run = bench.run("price", [BASELINE, LIMITED], rounds=bench.pick(30, 12), seconds=1.0)
    return Reading(
        values={
            "enqueue": run.ratios("tx_per_s", LIMITED, BASELINE),
            "worker": run.ratios("tasks_per_s", LIMITED, BASELINE),
            "a job, asked for and run": run.ratios("jobs_per_s", LIMITED, BASELINE),
        },
        runs=(run,),
    )
