"""Finds the tables in the pages and puts the code's own in their place."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from docs.tables import checks, commands, errors, ledger, public, settings, watch

DOCS = Path(__file__).resolve().parents[1]
TABLES: dict[str, Callable[[], list[str]]] = {
    **settings.TABLES,
    **ledger.TABLES,
    **errors.TABLES,
    **commands.TABLES,
    **watch.TABLES,
    **checks.TABLES,
    **public.TABLES,
}
_TABLE = re.compile(r"(<!-- table: ([\w. ]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def pages() -> list[Path]:
    """Every page that holds a table."""
    return [page for page in sorted(DOCS.rglob("*.md")) if _TABLE.search(page.read_text("utf-8"))]


def renewed(text: str) -> str:
    """``text`` with its tables as the code has them now.

    :raises KeyError: for a table that nothing makes.
    """
    return _TABLE.sub(_filled, text)


def _filled(found: re.Match[str]) -> str:
    lines: Sequence[str] = TABLES[found[2]]()
    return "\n".join([found[1], *lines, "", found[3]])


def placed() -> set[str]:
    """The names of the tables that are on some page."""
    return {found[2] for page in pages() for found in _TABLE.finditer(page.read_text("utf-8"))}
