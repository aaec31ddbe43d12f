"""The pages that users read, taken apart: code blocks, words in code, links."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from tests.kit.ground import ROOT

README = ROOT / "README.md"
QUICKSTART = ROOT / "docs" / "quickstart.md"
TESTING = ROOT / "docs" / "guides" / "testing.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece of code on a page; ``label`` is what its first line says when that is a comment."""

    page: Path
    language: str
    text: str

    @property
    def label(self) -> str:
        first = self.text.partition("\n")[0]
        return first.removeprefix("# ") if first.startswith("# ") else ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.label or self.text.splitlines()[0]}"


def pages() -> list[Path]:
    """README, changelog and all documentation."""
    return [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The code blocks of a page, in order."""
    found = (
        Block(page=page, language=match[1], text=match[2])
        for match in _BLOCK.finditer(page.read_text())
    )
    return [block for block in found if language in (None, block.language)]


def words(page: Path) -> Iterator[str]:
    """What a page's prose and tables set as code."""
    yield from _CODE.findall(_FENCED.sub("", page.read_text()))


def links(page: Path) -> Iterator[str]:
    """Where a page's links point to, inside the project."""
    for target in _LINK.findall(_FENCED.sub("", page.read_text())):
        if "://" not in target and not target.startswith("#"):
            yield target.partition("#")[0]
