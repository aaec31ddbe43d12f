"""The pages of failures: their parts, the words that they rest on, and their code, run.

``python -m tests.contracts.failures`` runs the code of all pages, each page in a namespace of its
own, with the settings that it shows in force.
"""

import re
from pathlib import Path
from typing import Any

from tests.contracts.pages import blocks, words
from tests.kit.ground import ROOT

FOLDER = ROOT / "docs" / "failures"
INDEX = FOLDER / "index.md"
PARTS = [
    "What one sees",
    "Why it happens",
    "What the guard does",
    "What is left to you",
    "See it happening",
    "Proved by",
]
_TEST = re.compile(r"tests/[\w/]+\.py")
_GUARANTEE = re.compile(r"\[([^\]]+)\]\(\.\./guarantees\.md\)")
_PROMISE = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)


def pages() -> list[Path]:
    """A page for each kind of failure."""
    return sorted(path for path in FOLDER.glob("*.md") if path != INDEX)


def parts(page: Path) -> list[str]:
    """The titles of a page's sections, in order."""
    return re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)


def part(page: Path, title: str) -> str:
    """The text of one section."""
    return page.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def proofs_of(page: Path) -> list[str]:
    """The test files that a page calls its proof."""
    return [word for word in words(page) if _TEST.fullmatch(word)]


def guarantees_of(page: Path) -> list[str]:
    """What a page calls promised or not promised, in the words of its links."""
    return [" ".join(found.split()) for found in _GUARANTEE.findall(page.read_text())]


def promises() -> set[str]:
    """What the page of guarantees says, in its own words."""
    text = (ROOT / "docs" / "guarantees.md").read_text()
    return {" ".join(found.split()).rstrip(".") for found in _PROMISE.findall(text)}


def settings_of(page: Path) -> dict[str, Any]:
    """The ``CELERY_GUARD`` that a page shows; empty without one."""
    found: dict[str, Any] = {}
    for block in blocks(page, "python"):
        if "CELERY_GUARD =" in block.text:
            names: dict[str, Any] = {"MIDDLEWARE": []}
            exec(block.text, names)
            found |= names["CELERY_GUARD"]
    return found


def run(page: Path) -> None:
    """Do what the code of a page does when it is imported: tasks and providers are declared."""
    from django.conf import settings
    from django.test import override_settings

    shown = settings_of(page)
    names: dict[str, Any] = {"__name__": f"failures.{page.stem}"}
    with override_settings(CELERY_GUARD={**settings.CELERY_GUARD, **shown}):
        for block in blocks(page, "python"):
            if not re.search(r"^(CELERY_\w+ =|print\()", block.text, re.MULTILINE):
                exec(compile(block.text, str(block), "exec"), names)


if __name__ == "__main__":
    import django

    django.setup()
    for each in pages():
        try:
            run(each)
        except Exception as error:
            error.add_note(f"on {each.name}")
            raise
