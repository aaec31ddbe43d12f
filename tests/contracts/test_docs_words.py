"""What the pages name exists, and what exists is named."""

import re
from pathlib import Path

import pytest

import celery_guard
from celery_guard.jobs.states import Reason
from celery_guard.outbox.functions import CURRENT
from celery_guard.run.outcome import SILENT
from celery_guard.settle.states import EffectState, Recovery
from celery_guard.watch.counted import ALL_COUNTED, TIMED
from celery_guard.watch.metrics import METRICS
from celery_guard.watch.prometheus import OTHERS
from docs.tables import checks, commands, errors, settings
from docs.tables.watch import scraped
from tests.contracts.pages import README, links, pages, words
from tests.kit.ground import ROOT

REFERENCE = ROOT / "docs" / "reference"
RUNBOOK = ROOT / "docs" / "operations" / "runbook.md"
# Python's, Django's and Celery's classes.
NOT_OURS = {
    *("None", "True", "False", "Decimal", "Exception", "TypeError"),
    *("ImproperlyConfigured", "TestCase", "TransactionTestCase"),
    *("Retry", "Reject", "Ignore", "SoftTimeLimitExceeded"),
    *("Celery", "DjangoTask", "AsyncResult", "EagerResult"),
    # Of the packages that one may come from.
    *("QueueOnce", "AlreadyQueued", "Singleton", "DuplicateTaskError"),
    *("OutboxCelery", "CeleryOutbox", "CeleryOutboxDeadLetter"),
}
# Their settings are told with the names that a site gives them.
NAMED = ("general", "lane", "dependency", "breaker")
ROOMS = ("enqueue", "jobs", "outbox", "relay", "run", "settle", "watch")
EVENT = re.compile(rf'"((?:{"|".join(ROOMS)})\.[a-z_]+)"')
# Names under the project's prefix that are no metrics: tables, NOTIFY's channel.
TABLES = re.compile(
    "celery_guard_(job|attempt|effect|outboxmessage|lanelead|lanesnapshot|duty|counter|limit|limithold"
    f"|{'|'.join(name.rstrip('0123456789') for name in CURRENT)})$"
)


def sources() -> list[Path]:
    """Every Python file of the package."""
    return sorted((ROOT / "celery_guard").rglob("*.py"))


def events() -> set[str]:
    """Every event that the package's rooms emit."""
    found: set[str] = set()
    for path in sources():
        lines = [line for line in path.read_text().splitlines() if "fault_point" not in line]
        if any("emit(" in line or "blind=" in line for line in lines):
            found |= set(EVENT.findall("\n".join(lines)))
    return found


def exported() -> set[str]:
    """Every series that is exported, by the name that a scrape has."""
    found = {scraped(metric) for metric in (*METRICS, *ALL_COUNTED, *OTHERS)}
    return found | {f"{metric.full_name}_bucket" for metric in TIMED}


def named(pattern: str) -> set[str]:
    """What all pages set as code and matches ``pattern`` as a whole."""
    return {word for page in pages() for word in words(page) if re.fullmatch(pattern, word)}


def cells(page: str, title: str = "") -> set[str]:
    """The words in code of the first column of a reference page's tables, after ``title``."""
    text = (
        (REFERENCE / page).read_text().partition(title)[2]
        if title
        else (REFERENCE / page).read_text()
    )
    first = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return {word for cell in first for word in re.findall(r"`([^`]+)`", cell)}


def test_dotted_names_are_settings_or_events():
    """`relay.poll`, `run.rescued`: a page names no setting and no event that isn't there."""
    sections = "|".join(name for name in settings.sections() if name not in NAMED)
    rooms = "|".join(ROOMS)
    known = settings.keys() | events()
    assert named(rf"(?:{sections}|{rooms})\.[a-z_]+") - known == set()


def test_classes_exist():
    """A page names no error and no class that isn't there."""
    found = "\n".join(path.read_text() for path in sources())
    ours = set(re.findall(r"^class (\w+)", found, re.MULTILINE))
    assert named(r"[A-Z][a-z]+[A-Za-z]*") - ours - NOT_OURS == set()


def test_every_event_is_explained():
    """An operator finds each log line by its name, and no line that is never written."""
    assert cells("events.md") == events()


def test_every_reason_is_explained():
    """The column `reason` holds nothing that its page doesn't explain or call reserved."""
    text = (REFERENCE / "states.md").read_text().partition("## Reasons")[2]
    known = {reason.value for reason in Reason} | set(SILENT)
    assert set(re.findall(r"`([a-z_]+)`", text)) - {"reason"} == known


def test_every_state_of_an_effect_is_explained():
    """The page of effects holds each state and each way of recovery, and no other."""
    text = (ROOT / "docs" / "guides" / "effects.md").read_text()
    first = set(re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE))
    assert first == {*EffectState.values, *Recovery.values}


def test_metrics_exist():
    """A page names no series that nobody exports."""
    mentioned = {
        word.partition("{")[0]
        for page in pages()
        for word in re.findall(r"\bcelery_guard_[a-z_]+", page.read_text())
        if not TABLES.match(word)
    }
    assert mentioned - exported() == set()


def test_the_runbook_knows_every_check():
    """Whoever is shown a check's id finds what it means under that id."""
    ours = set(re.findall(r"^### ([EW]\d{3})$", RUNBOOK.read_text(), re.MULTILINE))
    assert ours == checks.ids()


def test_checks_exist():
    """A page names no check that isn't there."""
    told = {name for page in pages() for name in re.findall(r"\b[EW]\d{3}\b", page.read_text())}
    assert told - checks.ids() == set()


def test_the_runbook_knows_every_alarming_metric():
    """A gauge that somebody may be woken by has its place in the runbook."""
    quiet = {"collect_duration_seconds", "queue_completions"}
    text = RUNBOOK.read_text()
    metrics = (*METRICS, *OTHERS)
    assert [m.full_name for m in metrics if m.name not in quiet and m.full_name not in text] == []


def test_commands_and_their_options_exist():
    """`guard_relay --once`: each command and option on a page is one that the parser takes."""
    told = {name for page in pages() for name in re.findall(r"\bguard_[a-z]+\b", page.read_text())}
    headers = {"guard_job", "guard_tick", "guard_context"}
    assert told - headers == set(commands.names())
    for page in pages():
        for name, rest in re.findall(r"\b(guard_[a-z]+)((?: +--?[\w-]+)+)", page.read_text()):
            own = commands.options(name)
            assert set(re.findall(r"--[\w-]+", rest)) <= {*own, "--database"}, f"{page}: {name}"


def test_every_public_name_is_in_the_reference():
    """The pages of names and errors hold the whole of `celery_guard.__all__`, and nothing else."""
    api = (REFERENCE / "api.md").read_text()
    told = set(re.findall(r"^\.\. auto\w+:: (\w+)$", api, re.MULTILINE))
    raised = {kind.__name__ for kind in errors.classes()}
    assert told | (raised & set(celery_guard.__all__)) == set(celery_guard.__all__)
    assert told & raised == set()


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """Links inside the project point to files that are there."""
    broken = [target for target in links(page) if not (page.parent / target).exists()]
    assert broken == []


def test_the_readme_is_short():
    """A newcomer reads it in one go."""
    assert len(README.read_text().splitlines()) <= 170
