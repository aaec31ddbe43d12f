"""A body that forks may let its child return. What the child would meet here is not its own.

It has copies: of the parent's sockets to the database and the broker, of its claim, of its place
in the pool. It would end the job a second time on the parent's connection, tell the main process
of it, and go on to take messages.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from celery_guard.enqueue.declaration import Guarded


def called_alone(task: Guarded, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the body of ``task`` returns, or raises, in this process.

    A process that it forked ends where it leaves the body: with status 0 after a return, 1 after
    an exception, and its own after ``sys.exit``. Nothing is closed, flushed or said to Celery.
    """
    mine = os.getpid()
    try:
        value = task.run(*args, **kwargs)
    except BaseException as error:
        if os.getpid() != mine:
            _end(task, error)
        raise
    if os.getpid() != mine:
        _end(task, None)
    return value


def _end(task: Guarded, error: BaseException | None) -> NoReturn:
    try:
        if not isinstance(error, SystemExit):
            _say(f"a process forked by {task.name} left the body and was ended", error)
    finally:
        # The ordinary end would say goodbye to the database on the parent's connection.
        os._exit(_status(error))


def _say(what: str, error: BaseException | None) -> None:
    # Receivers of events and handlers of logs hold sockets of the parent's, too.
    lines = [f"celery-guard: {what}\n", *(traceback.format_exception(error) if error else ())]
    with contextlib.suppress(OSError):
        os.write(2, "".join(lines).encode(errors="replace"))


def _status(error: BaseException | None) -> int:
    if isinstance(error, SystemExit):
        code = error.code
        return code & 0xFF if isinstance(code, int) else int(code is not None)
    return int(error is not None)
