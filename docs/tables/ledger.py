"""States, moves and reasons, as ``celery_guard/jobs/states.py`` has them."""

from collections.abc import Iterable

from celery_guard.jobs.states import DEAD_LETTERS, MOVES, RERUNNABLE, TERMINAL, Reason, State
from docs.tables.markdown import code, table


def _states() -> list[str]:
    rows = (
        (
            code(state.value),
            _yes(state, TERMINAL),
            _yes(state, RERUNNABLE),
            _yes(state, DEAD_LETTERS),
        )
        for state in State
    )
    return table(("state", "ended", "can be replayed", "dead letter"), rows)


def _yes(state: State, group: Iterable[State]) -> str:
    return "yes" if state in group else ""


def _moves() -> list[str]:
    rows = (
        (
            code(move.name),
            ", ".join(code(state.value) for state in move.before) or "–",
            code(move.after.value),
            move.by,
            move.guard,
        )
        for move in MOVES
    )
    return table(("move", "from", "to", "by whom", "only while"), rows)


def reasons() -> set[str]:
    """Every reason code."""
    return {reason.value for reason in Reason}


TABLES = {"states": _states, "moves": _moves}
