"""Row 9: the guard's own share of an execution."""

from benchmarks.bench import Bench, Reading

GUARD, BASELINE = "celery_guard", "biz_only"
RATE = "tasks_per_s"


def in_process(bench: Bench) -> Reading:
    """Row 9.

    A slice lasts half a second: in 0.15 s a few dozen jobs ran, and one that met a checkpoint of the
    database or another process' turn moved the ratio of its round by a quarter.
    """
    more = ["idem_orm_2tx", "idem_sql_2tx", "idem_sql_1tx"]
    run = bench.run(
        "claims",
        variants={name: (name, {}) for name in [BASELINE, GUARD, *bench.pick(more, [])]}
        | {"duplicate": (GUARD, {"duplicates": 1})},
        rounds=bench.pick(40, 12),
        seconds=0.5,
        prepared=1000,
    )
    return Reading(
        values={
            "two transactions": run.ratios(RATE, GUARD, BASELINE),
            "skipped duplicate": run.ratios(RATE, "duplicate", BASELINE),
        },
        runs=(run,),
    )
