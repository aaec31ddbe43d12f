"""Row 12: the same work beside more and more history, from 10³ to 10⁷ finished jobs."""

from statistics import median

from benchmarks import history
from benchmarks.bench import Bench, Reading
from benchmarks.scenarios.history import CLOCK, PAGES, QUERIES
from benchmarks.table import GROWING, GROWTH
from benchmarks.turns import Measured

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
QUICK_SIZES = (1_000, 100_000)


def beside_history(bench: Bench) -> Reading:
    """Row 12; the short form goes to 100,000 jobs, the long one takes 30 GB for a while."""
    sizes = bench.pick(SIZES, QUICK_SIZES)
    with history.databases(bench.place.database_url, sizes, bench.say) as databases:
        run = bench.run(
            "history",
            variants={
                f"{size:,} finished": ("celery_guard_site", {"database": name, "done": size})
                for size, name in databases.items()
            },
            rounds=bench.pick(20, 6),
        )
    return Reading(
        values={
            **{f"{work}{GROWTH}": _slowdown(run, work) for work in GROWING},
            "slowest page beside the most, by the clock": [_most(run, CLOCK)],
            "slowest page beside the most, of processor": [_most(run, "")],
            "most queries of one page": [_most(run, QUERIES)],
        },
        runs=(run,),
    )


def _slowdown(run: Measured, metric: str) -> list[float]:
    least, *_, most = run.results
    return run.ratios(metric, most, least)


def _most(run: Measured, what: str) -> float:
    *_, most = run.results
    found = (run.values(f"{page}{what}", most) for page in PAGES)
    return max((median(values) for values in found if values), default=0.0)
