"""The command that changes limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from celery_guard.models import LimitChange
from celery_guard.relay.limits import changes
from celery_guard.watch.doctor.lanes import look_at_limits

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]

TERMS = {"time": "2h", "reason": "they asked for it", "by": "ana"}


@pytest.fixture(autouse=True)
def _provider(settings: Any) -> Iterator[None]:
    given = {"payments": {"rate": "50/s", "burst": 20, "concurrency": 10}}
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "dependencies": given}
    changes.forget()
    yield
    changes.forget()


def run(*words: str, **options: Any) -> str:
    """What the command prints."""
    out = StringIO()
    call_command("guard_limit", *words, stdout=out, **options)
    return out.getvalue()


def test_limits_are_set_shown_and_ended() -> None:
    """Who, why, how long, and what holds after it; the doctor reminds of it."""
    by_settings = "payments has rate 50/1s (burst 20), concurrency 10, by the settings\n"
    assert run() == by_settings
    told = run("payments", rate="5/s", burst="2", **TERMS)
    assert told.startswith("payments has rate 5/1s (burst 2), concurrency 10 for another ")
    assert "(ana: they asked for it); then rate 50/1s (burst 20), concurrency 10" in told
    (found,) = look_at_limits()
    assert "guard_limit payments --end" in str(found)
    (shown,) = json.loads(run(json=True))["limits"]
    assert (shown["limits"], shown["author"]) == (
        "rate 5/1s (burst 2), concurrency 10",
        "ana",
    )
    assert run("payments", end=True, by="ben") == by_settings
    assert LimitChange.objects.get().ended_by == "ben"
    assert list(look_at_limits()) == []
    with pytest.raises(CommandError, match="nothing is set") as caught:
        run("payments", end=True)
    assert caught.value.returncode == 1


@pytest.mark.parametrize(
    ("words", "options", "fault"),
    [
        (("payments",), {}, "name a rate.*--for.*--reason"),
        (("paymnts",), {"rate": "5/s", **TERMS}, "no dependency 'paymnts'"),
        (("payments",), {"rate": "fast", **TERMS}, "a rate is like"),
        (("payments",), {"concurrency": 0, **TERMS}, "name a rate.*from 1 to"),
        (("payments",), {"rate": "5/s", **TERMS, "time": "31d"}, "30 days"),
        (("payments",), {"rate": "5/s", "end": True}, "not both"),
        ((), {"end": True}, "name the dependency"),
    ],
)
def test_every_fault_is_said_at_once(
    words: tuple[str, ...], options: dict[str, Any], fault: str
) -> None:
    """Nothing was changed by the wrong call."""
    with pytest.raises(CommandError, match=fault) as caught:
        run(*words, **options)
    assert caught.value.returncode == 2
    assert not LimitChange.objects.exists()
