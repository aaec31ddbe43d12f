"""The pages of failures say nothing that is not there, and prove it with tests that are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from celery.app.defaults import SETTING_KEYS

from celery_guard.conf import read_settings
from celery_guard.jobs.states import Reason
from docs.tables import checks, commands, settings
from tests.contracts.failures import (
    INDEX,
    PARTS,
    guarantees_of,
    pages,
    part,
    parts,
    promises,
    proofs_of,
    settings_of,
)
from tests.contracts.pages import links, words
from tests.contracts.test_docs_words import ROOMS, events, exported
from tests.kit.ground import ROOT
from tests.kit.processes import environment

each = pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)


@each
def test_a_page_has_its_parts(page: Path) -> None:
    """Seen, why, what is done, what is left, how to watch, what proves it: always in this order."""
    assert parts(page) == PARTS
    assert 40 <= len(page.read_text().splitlines()) <= 80
    assert "```python" in part(page, "What is left to you")


@each
def test_a_page_is_found_by_a_symptom(page: Path) -> None:
    """The index leads to every page, under its own title, and its tree holds it."""
    title = page.read_text().partition("\n")[0].removeprefix("# ")
    text = INDEX.read_text()
    assert f"[{title}]({page.name})" in text
    assert re.search(rf"^{page.stem}$", text, re.MULTILINE)


@each
def test_the_tests_that_it_names_are_there(page: Path) -> None:
    """Each is a file with tests in it, and the last part names nothing but such files."""
    named = proofs_of(page)
    assert len(named) >= 2
    missing = [name for name in named if "def test_" not in _text(ROOT / name)]
    assert missing == []
    proofs = re.findall(r"^- `([^`]+)`: ", part(page, "Proved by"), re.MULTILINE)
    assert proofs == named


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


@each
def test_what_it_calls_promised_is_promised(page: Path) -> None:
    """A link to the guarantees has the words of one of them, or of what is not promised."""
    told = guarantees_of(page)
    assert told
    assert set(told) - promises() == set()


@each
def test_its_words_exist(page: Path) -> None:
    """Every setting, event, metric, command, check and reason is one that the code has."""
    known = settings.keys() | events() | exported() | set(commands.names()) | checks.ids()
    known |= {str(reason.value) for reason in Reason}
    ours = "|".join([*ROOMS, *(name for name in settings.sections() if " " not in name)])
    pattern = (
        rf"(?:(?:{ours})\.[a-z_]+|(?:lanes|dependencies)\.[\w<>.]+|celery_guard_\w+|[EW]\d{{3}})"
    )
    told = {word for word in words(page) if re.fullmatch(pattern, word)}
    assert told - known == set()
    asked = set(re.findall(r"\bguard_[a-z]+\b", page.read_text()))
    assert asked - set(commands.names()) == set()


@each
def test_it_shows_where_to_look(page: Path) -> None:
    """The part on watching names something that the code emits, exports, runs or checks."""
    emitted = events() | exported() | checks.ids()
    seen = part(page, "See it happening")
    named = set(re.findall(r"`([^`{]+)[`{]", seen)) & emitted
    assert named | (set(re.findall(r"\bguard_[a-z]+\b", seen)) & set(commands.names()))


@each
def test_celerys_settings_are_celerys(page: Path) -> None:
    """`task_…`, `worker_…` and `CELERY_…` are settings of the installed Celery."""
    told = {word for word in words(page) if re.fullmatch(r"(?:task|worker|broker)_[a-z_]+", word)}
    shown = set(re.findall(r"\bCELERY_([A-Z_]+)\b", page.read_text())) - {"GUARD"}
    assert (told | {name.lower() for name in shown}) - set(SETTING_KEYS) == set()


@each
def test_its_settings_are_read_without_a_fault(page: Path) -> None:
    """What it shows as ``CELERY_GUARD`` can be pasted."""
    _, faults = read_settings(settings_of(page))
    assert faults == []


def test_its_code_runs() -> None:
    """Tasks and providers are declared as shown, under the settings that their page shows."""
    env = {**environment(), "DJANGO_SETTINGS_MODULE": "tests.project.settings"}
    command = [sys.executable, "-W", "error", "-m", "tests.contracts.failures"]
    ran = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_index_leads_to_files() -> None:
    """No row of its tables ends nowhere, and each has one sentence and one link."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", INDEX.read_text(), re.MULTILINE)
    symptoms = [row for row in rows if not row[0].startswith(("---", "what one sees"))]
    assert len(symptoms) >= 2 * len(pages())
    assert [row for row in symptoms if len(re.findall(r"\]\(", row[1])) != 1] == []
    assert [name for name in links(INDEX) if not (INDEX.parent / name).is_file()] == []
