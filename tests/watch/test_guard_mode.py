"""The command that sets modes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from celery_guard.enqueue.rollout import reading
from celery_guard.models import TaskMode
from tests.project.shop.tasks import mark, plain

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]

TERMS = {"time": "7d", "reason": "first steps", "by": "ana"}


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    reading.forget()
    yield
    reading.forget()


def run(*words: str, **options: Any) -> str:
    """What the command prints."""
    out = StringIO()
    call_command("guard_mode", *words, stdout=out, **options)
    return out.getvalue()


def test_a_mode_is_set_shown_and_ended(settings: Any) -> None:
    """Who, why, how long, and what counts after it."""
    settings.CELERY_GUARD = {
        **settings.CELERY_GUARD,
        "rollout": {"modes": {mark.name: "off"}},
    }
    assert run() == f"{mark.name} is off, by the settings\n"
    told = run(mark.name, "canary:10", **TERMS)
    assert f"{mark.name} is canary:10 for another" in told
    assert "(ana: first steps); then off" in told
    (shown,) = json.loads(run(json=True))["modes"]
    assert (shown["stage"], shown["author"]) == ("canary:10", "ana")
    assert run(mark.name, end=True, by="ben") == f"{mark.name} is off, by the settings\n"
    assert TaskMode.objects.get().ended_by == "ben"
    with pytest.raises(CommandError, match="nothing is set") as caught:
        run(mark.name, end=True)
    assert caught.value.returncode == 1


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ((mark.name,), "name the mode.*--for.*--reason"),
        ((mark.name, "canry:5"), 'must be "off".*--for'),
        ((mark.name, "compare"), "not declared comparable=True"),
        ((plain.name, "off"), "no guarded task"),
        (("nowhere", "off"), "there is no task 'nowhere'"),
    ],
)
def test_every_fault_is_said_at_once(words: tuple[str, ...], fault: str) -> None:
    """Nothing was changed by the wrong call."""
    with pytest.raises(CommandError, match=fault) as caught:
        run(*words)
    assert caught.value.returncode == 2
    assert not TaskMode.objects.exists()
