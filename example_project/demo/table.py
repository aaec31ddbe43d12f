"""The end table, for people and for programs."""

import json
import math

from rich import box
from rich.console import Console
from rich.table import Table

from demo.play import Story


def show(story: Story, console: Console) -> None:
    """Print the table: framed on a terminal, plain lines elsewhere."""
    table = Table(
        title="Counted from the outside", box=box.ROUNDED if console.is_terminal else None
    )
    for heading in ("what", "counted by", "owed", "seen", "lost", "twice", "p50", "p95"):
        table.add_column(heading, justify="left" if heading in _WORDS else "right")
    for kind in story.tally.kinds:
        figures = (story.tally.orders, kind.count, kind.lost, kind.duplicated + kind.strangers)
        delays = (_time(kind.p50_ms), _time(kind.p95_ms))
        table.add_row(kind.name, kind.witness, *map(str, figures), *delays)
    console.print(table)
    for line in _lines(story):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def as_json(story: Story) -> str:
    """One line of JSON; times in milliseconds, null where nothing was measured."""
    tally, damage = story.tally, story.damage
    return json.dumps(
        {
            "orders": tally.orders,
            "invoices": tally.count("invoices"),
            "mails": tally.count("mails"),
            "charges": tally.count("charges"),
            "lost": tally.lost,
            "duplicated": tally.duplicated,
            "commit_to_effect_p50_ms": _number(tally.p50_ms),
            "commit_to_effect_p95_ms": _number(tally.p95_ms),
            "kills": damage.kills,
            "wipes": damage.wipes,
            "messages_wiped": damage.messages_wiped,
            "repeats_suppressed": sum(story.repeats.values()),
            "unfinished": story.unfinished,
            "stale_products": story.stale_products,
        }
    )


def _lines(story: Story) -> list[str]:
    tally, damage, provider = story.tally, story.damage, story.provider
    lines = [
        f"orders accepted over HTTP: {tally.orders} of {story.asked}",
        f"commit to effect, all kinds: p50 {_time(tally.p50_ms)}, p95 {_time(tally.p95_ms)}",
        f"workers killed with -9: {damage.kills}, charges under way: {damage.charges_in_flight}",
        f"brokers wiped: {damage.wipes}, messages waiting in it: {damage.messages_wiped}",
        "payment provider: "
        + ", ".join(f"{provider.get(kind, 0)} {words}" for kind, words in _PROVIDER.items()),
        f"repeats dropped by the payment provider (Idempotency-Key): {story.repeats['charges']}",
        f"repeats dropped by the mail catcher (Message-ID): {story.repeats['mails']}",
        f"products whose search row misses an order: {story.stale_products}",
    ]
    if not story.settled:
        lines.append(f"gave up waiting; jobs not ended: {story.unfinished}")
    lines += [f"refused: {answer}" for answer in story.refused]
    return [*lines, f"lost: {tally.lost}, twice: {tally.duplicated}"]


def _time(ms: float) -> str:
    if math.isnan(ms):
        return "-"
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def _number(ms: float) -> float | None:
    return None if math.isnan(ms) else round(ms, 1)


_WORDS = ("what", "counted by")
_PROVIDER = {
    "lost": "answers lost after the charge",
    "throttle": "throttled",
    "fail": "failed",
    "slow": "slow",
}
