"""Named points at which a process can be made to die, so that tests can prove what survives.

They stand before and after every write and every outside call. ``GUARD_FAULT="relay.marked"``
kills the process with SIGKILL when it first passes that point; ``"relay.marked:3"`` at the third
time. ``"in:/a/folder"`` looks for a file ``relay.marked.armed`` there each time: whoever takes it
away first dies, so a test arms one point after the other while the processes run, and exactly one
process dies of each. Without the variable a point costs one comparison.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

React = Callable[[str, tuple[int, ...]], None]

POINTS: dict[str, str] = {
    "outbox.writing": "a job and its message are about to be written",
    "outbox.written": "they are written, in the caller's open transaction",
    "outbox.committed": "that transaction is committed, and no relay knows of it",
    "relay.leads": "lanes were taken or kept",
    "relay.marked": "jobs are marked as sent, and the broker knows nothing",
    "relay.sent_again": "lost jobs are marked as sent once more, and the broker knows nothing",
    "relay.telling": "messages of untold ended jobs are counted once more, and the broker knows nothing",
    "relay.publishing": "a batch is about to be published",
    "relay.published": "the broker has the batch, and the relay has written down nothing",
    "relay.writing_back": "what did not go well is about to be written down",
    "relay.wrote_back": "it is written down",
    "run.claiming": "a message has arrived, its job is about to be claimed",
    "run.claimed": "the claim is committed, the body has not begun",
    "run.handing_on": "the body is done; the next steps and the end are about to be written",
    "run.finishing": "the end is written, not committed; or both are about to be done in one message",
    "run.finished": "finish() has committed, the body goes on",
    "run.committed": "the end is committed, and Celery knows nothing of it",
    "run.answering": "Celery has stored the end, the job does not say so yet",
    "run.answered": "the job says that it is answered; the message is not acknowledged",
    "run.recording": "an end that is no success is about to be written",
    "run.recorded": "it is committed",
    "run.beating": "a lease is about to be extended",
    "run.beaten": "it is extended",
    "run.rescuing": "leases that are over are taken away, not committed",
    "run.rescued": "that is committed",
    "run.losing": "the job of a process known to be dead is given back, not committed",
    "run.lost": "that is written; in a worker's main process not committed",
    "run.main_moved": "the main process has moved a job, not committed",
    "run.main_committed": "that is committed, and Celery's own part is to come",
    "settle.preparing": "an effect's intent is about to be written",
    "settle.prepared": "it is written",
    "settle.sending": "the lease covers the call; the effect is about to be marked as sent",
    "settle.sent": "the effect is marked as sent, the call has not begun",
    "settle.answered": "the provider has answered, nothing of it is written",
    "settle.confirmed": "the answer is written",
    "settle.failing": "the call has failed, nothing of it is written",
    "settle.failed": "that is written",
    "settle.looking_up": "the provider is about to be asked what became of a call",
    "settle.looked_up": "it has said so, nothing of it is written",
    "settle.freeing": "reconciling jobs are let go, not committed",
    "settle.freed": "that is committed",
    "settle.replaying": "a step of a bulk replay is done, not committed",
    "settle.replayed": "that is committed",
}
"""Every point by name, with what is true there; duties add one each, ``duty.<name>``."""


def fault_point(name: str, *jobs: int) -> None:
    """Die here, as ``kill -9`` would have it, if somebody asked for that.

    :param jobs: the jobs that this process has in hand, for the record of who was touched.
    """
    if _react is not None:
        _react(name, jobs)


@contextlib.contextmanager
def reacting(react: React) -> Iterator[None]:
    """Call ``react(name, jobs)`` at each point that this process passes within the block."""
    global _react  # noqa: PLW0603 - one per process is the point
    before, _react = _react, react
    try:
        yield
    finally:
        _react = before


def arm(folder: Path, name: str) -> None:
    """Let the next process that passes ``name`` under ``GUARD_FAULT="in:<folder>"`` die there.

    :raises KeyError: when there is no such point.
    """
    if name not in POINTS:
        raise KeyError(name)
    (folder / f"{name}.armed").touch()


def disarm(folder: Path, name: str) -> bool:
    """Take back :func:`arm`; False when somebody has died of it."""
    try:
        (folder / f"{name}.armed").unlink()
    except FileNotFoundError:
        return False
    return True


def _die_of(name: str, times: int) -> React:
    passes_left = iter(range(times - 1, -1, -1))

    def react(passed: str, jobs: tuple[int, ...]) -> None:
        if passed == name and next(passes_left, 0) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return react


def _die_where_armed(folder: Path) -> React:
    def react(passed: str, jobs: tuple[int, ...]) -> None:
        armed, taken = folder / f"{passed}.armed", folder / f".{passed}.{os.getpid()}"
        try:
            armed.rename(taken)
        except FileNotFoundError:
            return
        died = {"point": passed, "pid": os.getpid(), "jobs": jobs, "at": time.time()}
        taken.write_text(json.dumps(died))
        taken.rename(folder / f"{passed}.{os.getpid()}.died")
        os.kill(os.getpid(), signal.SIGKILL)

    return react


def _from_environment(wish: str) -> React | None:
    if wish.startswith("in:"):
        return _die_where_armed(Path(wish.removeprefix("in:")))
    name, _, times = wish.partition(":")
    return _die_of(name, int(times or 1)) if name else None


_react = _from_environment(os.environ.get("GUARD_FAULT", ""))
