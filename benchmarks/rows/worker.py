"""Row 8: what the guard costs a worker."""

from benchmarks.bench import Bench, Reading

GUARD = "celery_guard_open"


def business_insert(bench: Bench) -> Reading:
    """Row 8."""
    more = ["idem_sql_2tx_reuse", "idem_sql_1tx_reuse"]
    run = bench.run(
        "worker",
        ["biz_only", "biz_only_reuse", GUARD, *bench.pick(more, [])],
        rounds=bench.pick(5, 2),
        jobs=bench.pick(3000, 1200),
        kind="write",
    )
    return Reading(
        values={
            "tasks/s ÷ plain as Celery comes": run.ratios("tasks_per_s", GUARD, "biz_only"),
            "tasks/s ÷ plain, both with connection reuse": run.ratios(
                "tasks_per_s", GUARD, "biz_only_reuse"
            ),
        },
        runs=(run,),
    )
