"""Tables as Markdown."""

import inspect
import re
from collections.abc import Iterable, Sequence

_ROLE = re.compile(r":\w+:`~?([^`<]+)(?: <[^`]*>)?`")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table; cells are Markdown already, but for bars and line ends."""
    return [_line(head), _line(["---"] * len(head)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def code(text: object) -> str:
    """``text`` as code; nothing for nothing."""
    return f"`{text}`" if text not in ("", None) else ""


def prose(docstring: str | None) -> str:
    """A docstring's first paragraph as Markdown on one line."""
    first = inspect.cleandoc(docstring or "").split("\n\n")[0]
    return _ROLE.sub(r"`\1`", first).replace("``", "`").replace("\n", " ").strip()
