"""Row 10: producer, relay and worker together."""

from benchmarks.bench import Bench, Reading
from benchmarks.turns import Measured

GUARD, BASELINE, PEER = "celery_guard_bulk", "delay_on_commit", "celery_outbox"


def twenty_thousand(bench: Bench) -> Reading:
    """Row 10; the short form has 3,000 jobs."""
    writing = _run(bench, [BASELINE, GUARD, PEER], "write")
    counting = _run(bench, [BASELINE, GUARD], "count")
    rate, producing = "jobs_per_s", "produce_tx_per_s"
    return Reading(
        values={
            "jobs/s ÷ delay_on_commit as it comes": writing.ratios(rate, GUARD, BASELINE),
            "jobs/s ÷ django-celery-outbox": writing.ratios(rate, GUARD, PEER),
            "producing ÷ delay_on_commit": writing.ratios(producing, GUARD, BASELINE),
            "no database in the body, jobs/s ÷ delay_on_commit": counting.ratios(
                rate, GUARD, BASELINE
            ),
        },
        runs=(writing, counting),
    )


def _run(bench: Bench, contenders: list[str], kind: str) -> Measured:
    return bench.run(
        "end_to_end",
        contenders,
        rounds=bench.pick(3, 1),
        transactions=bench.pick(2000, 300),
        jobs=10,
        kind=kind,
    )
