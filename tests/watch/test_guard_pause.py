"""The commands that pause and resume."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from celery_guard.enqueue.steering import reading
from celery_guard.management.commands.guard_pause import seconds_in
from celery_guard.models import Switch
from celery_guard.watch.doctor.lanes import look_at_switches
from celery_guard.watch.doctor.leftovers import look_at_leftovers
from celery_guard.watch.lanes import read_lanes
from celery_guard.watch.metrics import LANE_METRICS
from celery_guard.watch.models import LaneSnapshot
from celery_guard.watch.snapshot import take_snapshot
from tests.factories import make_job
from tests.project.shop.tasks import mark

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    reading.forget()
    yield
    reading.forget()


def run(name: str, *words: str, **options: Any) -> str:
    """What the command prints."""
    out = StringIO()
    call_command(name, *words, stdout=out, using=["default"], **options)
    return out.getvalue()


PAUSE = {"time": "2h", "reason": "provider down", "by": "ana"}


def test_a_pause_says_how_it_ends() -> None:
    """What is held, how long, by whom, and the line that ends it; the resume leaves nothing."""
    told = run("guard_pause", lane="low", **PAUSE)
    switch = Switch.objects.get()
    assert (switch.action, switch.lane, switch.author) == ("hold", "low", "ana")
    assert "holds lane low for another" in told
    assert "ana: provider down" in told
    assert f"python manage.py guard_resume {switch.pk}" in told
    assert told == run("guard_pause", list=True)
    assert f"ended: switch {switch.pk}" in run("guard_resume", str(switch.pk))
    assert run("guard_pause", list=True) == "nothing is paused\n"


def test_everything_that_is_missing_is_said_at_once() -> None:
    """An operator corrects a call once; nothing was changed by the wrong one."""
    with pytest.raises(CommandError, match=r"--lane.*--for.*--reason") as caught:
        run("guard_pause")
    assert caught.value.returncode == 2
    assert not Switch.objects.exists()


@pytest.mark.parametrize(
    ("given", "meant"),
    [({"lane": "hihg"}, "high"), ({"task": mark.name + "s"}, mark.name), ({"time": "soon"}, "30m")],
    ids=["lane", "task", "time"],
)
def test_a_name_that_matches_nothing_is_refused(given: dict[str, str], meant: str) -> None:
    """A typing error must not look like a pause."""
    with pytest.raises(CommandError, match=meant):
        run("guard_pause", **{"tenant": "a", **PAUSE, **given})
    assert not Switch.objects.exists()


def test_too_long_is_refused() -> None:
    """What is forgotten must end by itself within a week."""
    with pytest.raises(CommandError, match="7 days"):
        run("guard_pause", all=True, **{**PAUSE, "time": "8d"})


def test_a_resume_by_name_and_its_exit_codes() -> None:
    """By what a switch names; 1 when there is nothing to end, 2 when nothing is named."""
    run("guard_pause", tenant="a", refuse=True, **PAUSE)
    run("guard_pause", tenant="b", **PAUSE)
    told = json.loads(run("guard_resume", tenant="a", json=True))
    assert [one["tenant"] for one in told["ended"]] == ["a"]
    assert [one["tenant"] for one in told["switches"]] == ["b"]
    for words, code in (({"tenant": "a"}, 1), ({}, 2), ({"tenant": "b", "all": True}, 2)):
        with pytest.raises(CommandError) as caught:
            run("guard_resume", **words)
        assert caught.value.returncode == code
    assert json.loads(run("guard_resume", all=True, json=True))["switches"] == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5h", 5400), ("2d", 172800), ("x", None)]
)
def test_times_as_people_write_them(text: str, seconds: float | None) -> None:
    """A number and a unit."""
    assert seconds_in(text) == seconds


def test_the_doctor_names_what_is_held() -> None:
    """A warning with the line that ends it; a relay that leaves a closed lane alone is not blamed."""
    make_job("low", due_in=-120)
    assert [finding.what for finding in look_at_leftovers("default")] == ["outbox of low"]
    run("guard_pause", lane="low", **PAUSE)
    (finding,) = look_at_switches("default")
    assert (finding.level, finding.what) == ("warning", "steering")
    assert finding.hint == f"python manage.py guard_resume {Switch.objects.get().pk}"
    assert not list(look_at_leftovers("default"))


def test_a_closed_lane_is_told_as_paused() -> None:
    """Only a hold on the whole lane; it is paused, and its relay not stuck."""
    make_job("low", due_in=-120)
    take_snapshot("default")
    assert LaneSnapshot.objects.filter(lane="low").exists()
    metric = next(m for m in LANE_METRICS if m.name == "queue_paused")

    def low() -> tuple[float | None, bool]:
        lane = next(lane for lane in read_lanes("default") if lane.name == "low")
        return metric.value(lane), lane.stuck_for > 0

    assert low() == (0, True)
    run("guard_pause", lane="low", tenant="a", **PAUSE)
    assert low() == (0, True)
    run("guard_pause", lane="low", **PAUSE)
    assert low() == (1, False)


def test_a_demotion_is_turned_on_shown_and_ended() -> None:
    """As a hold and a refusal are; two of them can't be asked for together."""
    told = run("guard_pause", tenant="a", demote=True, **PAUSE)
    switch = Switch.objects.get()
    assert (switch.action, switch.tenant) == ("demote", "a")
    assert f"switch {switch.pk} demotes tenant a for another" in told
    (finding,) = look_at_switches("default")
    assert "demotes tenant a" in finding.says
    assert "ended" in run("guard_resume", str(switch.pk))
    with pytest.raises(CommandError, match="not allowed with"):
        run("guard_pause", "--demote", "--refuse", "--tenant", "a")
