"""The list of checks as data."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

import celery_guard
from celery_guard.checks import CHECKS, Check

ROOM = Path(celery_guard.__file__).parent / "watch" / "checks"


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_check_has_an_id_a_title_and_a_hint(check: Check) -> None:
    """The hint names something to write; every field of both is one the finder can fill."""
    assert re.fullmatch(r"[EW]\d{3}", check.id)
    assert check.title
    assert re.search(r"Write|Correct|Use|Guard", check.hint)
    fields = {
        f for text in (check.title, check.hint) for _, f, *_ in string.Formatter().parse(text)
    }
    assert all(field is None or field.isidentifier() for field in fields)


def test_every_check_is_found_by_somebody_and_nobody_finds_others() -> None:
    """The table promises what the code looks for."""
    used = {
        i for path in ROOM.glob("*.py") for i in re.findall(r'CHECKS\["(\w+)"\]', path.read_text())
    }
    assert used == set(CHECKS)


def test_every_check_has_a_test() -> None:
    """An id that no test names has never been seen."""
    tests = "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py"))
    assert [i for i in CHECKS if f'"{i}"' not in tests] == []
