"""One batch, and what became of each message in it.

Whether an error means that the broker is away or that one message can't be sent is decided by
probing the destination; the exception's class can't tell the two apart.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from redis.exceptions import TimeoutError as SilentRedis

from celery_guard.jobs.sending import Sending
from celery_guard.relay.publish.wire import BudgetSpent, Outgoing, Publisher, Tally


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What became of a batch.

    ``unsent`` did not arrive, or nobody can tell; ``refused`` were answered with a no that may
    change; ``poison`` can never be sent; ``outage`` says why the destination counts as away.
    """

    sent: tuple[Sending, ...] = ()
    unsent: tuple[Sending, ...] = ()
    refused: tuple[tuple[Sending, str], ...] = ()
    poison: tuple[tuple[Sending, str], ...] = ()
    outage: str = ""


def deliver(publisher: Publisher, batch: Sequence[Sending], budget: float) -> Delivery:
    """Publish ``batch`` within about ``budget`` seconds. Never raises for a broker's sake."""
    deadline = time.monotonic() + budget
    messages, poison = _encode(publisher, batch)
    tally = Tally()
    outage = ""
    if messages and (trouble := _try(publisher, messages, tally, deadline)):
        outage = _sort_out(publisher, messages, tally, poison, trouble, deadline)
    if outage:
        publisher.close()
    return _delivery(batch, tally, poison, outage)


def _encode(
    publisher: Publisher, batch: Sequence[Sending]
) -> tuple[list[Outgoing], dict[int, str]]:
    messages, poison = [], {}
    for sending in batch:
        try:
            messages.append(publisher.encode(sending))
        # No network here, so whatever it is, it is this message's own fault.
        except Exception as error:  # noqa: BLE001
            poison[sending.id] = describe(error)
    return messages, poison


def _try(
    publisher: Publisher, messages: list[Outgoing], tally: Tally, deadline: float
) -> Exception | None:
    try:
        publisher.send(messages, tally, deadline)
    except Exception as error:  # noqa: BLE001
        return error
    return None


def _sort_out(
    publisher: Publisher,
    messages: list[Outgoing],
    tally: Tally,
    poison: dict[int, str],
    trouble: Exception,
    deadline: float,
) -> str:
    rest = [m for m in messages if m.job_id not in tally.sent | tally.refused.keys()]
    if not rest or isinstance(trouble, BudgetSpent) or not _alive(publisher, rest[0]):
        return describe(trouble)
    for message in rest:
        failed, alive = _alone(publisher, message, tally, deadline)
        if failed is not None and not alive:
            return describe(failed)
        if failed is not None:
            _condemn(message, failed, tally, poison)
    return ""


def _alone(
    publisher: Publisher, message: Outgoing, tally: Tally, deadline: float
) -> tuple[Exception | None, bool]:
    # Twice: a connection that broke just now must not condemn the message it carried.
    for _ in range(2):
        failed = _try(publisher, [message], tally, deadline)
        if failed is None:
            return None, True
        if isinstance(failed, BudgetSpent) or not _alive(publisher, message):
            return failed, False
    return failed, True


def _condemn(message: Outgoing, trouble: Exception, tally: Tally, poison: dict[int, str]) -> None:
    # Silence is not an answer: it puts the message off, and doesn't end its job.
    silent = isinstance(trouble, TimeoutError | SilentRedis)
    (tally.refused if silent else poison)[message.job_id] = describe(trouble)


def _alive(publisher: Publisher, message: Outgoing) -> bool:
    try:
        publisher.probe(message)
    except Exception:  # noqa: BLE001
        return False
    return True


def describe(error: Exception) -> str:
    """The error as one short line."""
    return f"{type(error).__name__}: {error}"[:500]


def _delivery(
    batch: Sequence[Sending], tally: Tally, poison: dict[int, str], outage: str
) -> Delivery:
    settled = tally.sent | tally.refused.keys() | poison.keys()
    return Delivery(
        sent=tuple(s for s in batch if s.id in tally.sent),
        unsent=tuple(s for s in batch if s.id not in settled),
        refused=tuple((s, tally.refused[s.id]) for s in batch if s.id in tally.refused),
        poison=tuple((s, poison[s.id]) for s in batch if s.id in poison),
        outage=outage,
    )
