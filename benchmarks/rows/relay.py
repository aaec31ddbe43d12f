"""Rows 4 to 6: how fast promises reach the broker."""

from benchmarks.bench import Bench, Reading
from benchmarks.turns import Measured

GUARD = "celery_guard_open"
PEER = "celery_outbox"
RATE = "rows_per_s"
MILLION = 1_000_000
USUAL = "50,000 waiting"


def redis(bench: Bench) -> Reading:
    """Row 4."""
    more = ["celery_outbox_tuned", "jaiminho", "limit_publish", "limit_pipeline", "limit_wire"]
    run = bench.run(
        "relay",
        [PEER, GUARD, *bench.pick(more, [])],
        rounds=bench.pick(5, 2),
        rows=50_000,
        seconds=bench.pick(10.0, 5.0),
    )
    return Reading(
        values={"rows/s ÷ django-celery-outbox": run.ratios(RATE, GUARD, PEER)}, runs=(run,)
    )


def rabbitmq(bench: Bench) -> Reading:
    """Row 5."""
    more = ["limit_publish", "limit_confirmed"]
    run = bench.run(
        "relay",
        [PEER, GUARD, *bench.pick(more, [])],
        rounds=bench.pick(5, 2),
        broker="amqp",
        rows=50_000,
        seconds=bench.pick(10.0, 5.0),
    )
    name = "rows/s ÷ django-celery-outbox unconfirmed"
    return Reading(values={name: run.ratios(RATE, GUARD, PEER)}, runs=(run,))


def million(bench: Bench) -> Reading:
    """Row 6; the short form has 300,000 rows instead."""
    many = bench.pick(MILLION, 300_000)
    waiting = {"rows": many, "seconds": bench.pick(120.0, 20.0)}
    run = bench.run(
        "relay",
        rounds=bench.pick(3, 1),
        variants={
            USUAL: (GUARD, {"rows": 50_000}),
            f"{many:,} waiting": (GUARD, waiting),
            f"{many:,} finished": (GUARD, {"rows": 50_000, "done": many}),
        },
    )
    idle = bench.run("idle", [GUARD], rounds=bench.pick(3, 1), done=many)
    return Reading(values=_million(run, idle), runs=(run, idle))


def _million(run: Measured, idle: Measured) -> dict[str, list[float]]:
    _, waiting, finished = run.results
    peaks, smaller = run.values("peak_rss_mib", waiting), run.values("peak_rss_mib", USUAL)
    return {
        "1,000,000 waiting, rows/s ÷ own 50,000 rate": run.ratios(RATE, waiting, USUAL),
        "1,000,000 finished, rows/s ÷ own 50,000 rate": run.ratios(RATE, finished, USUAL),
        "peak memory": peaks,
        "peak memory over the 50,000 run's": [
            high - low for high, low in zip(peaks, smaller, strict=False)
        ],
        "idle poll, time in SQL": idle.values("sql_ms_per_poll", GUARD),
    }
