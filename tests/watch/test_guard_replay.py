"""The command that replays dead letters in bulk."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from celery_guard.models import Job, Replay
from celery_guard.settle.replay.stepping import replay_a_little
from tests.settle.test_replay import BANG, BOOM, TASK, dead

pytestmark = [pytest.mark.django_db, pytest.mark.mariadb]

WHY = {"reason": "mended", "by": "ana"}


def run(*words: str, **options: Any) -> str:
    """What the command prints."""
    out = StringIO()
    call_command("guard_replay", *words, stdout=out, using=["default"], **options)
    return out.getvalue()


def test_a_preview_says_what_would_run_and_starts_nothing() -> None:
    """How many, how long, of which tasks."""
    jobs = [dead() for _ in range(3)]
    told = run(group=BOOM, preview=True, pace="1/m")
    assert told.splitlines()[0] == "default: 3 dead letters, 3 min at this pace"
    assert f"  3 of {TASK}" in told
    assert str(jobs[-1].pk) in told
    (found,) = json.loads(run(group=BOOM, preview=True, json=True))["preview"]
    assert (found["using"], found["jobs"], found["asking"]) == ("default", 3, 0)
    assert not Replay.objects.exists()


def test_a_start_says_how_it_stands_and_how_it_ends() -> None:
    """The relays do it; the line that cancels it is printed."""
    dead(mark=BANG)
    job = dead()
    told = run(task=TASK, group=BOOM, pace="50/s", **WHY)
    replay = Replay.objects.get()
    assert (replay.task, replay.mark, replay.pace, replay.author) == (TASK, BOOM, 50.0, "ana")
    assert f"replay {replay.pk} of task {TASK}, group {BOOM}: choosing" in told
    assert f"guard_replay --cancel {replay.pk} --using default" in told
    replay_a_little("default")
    assert Job.objects.get(pk=job.pk).state == "waiting"
    told = run(list=True)
    assert re.search(r"done, 1 of 1 replayed, 0 left alone \(ana: mended\)", told)
    (one,) = json.loads(run(list=True, json=True))["replays"]
    assert (one["state"], one["replayed"], one["left"]) == ("done", 1, 0)


def test_a_cancel_ends_it() -> None:
    """Who did is kept; there is nothing to cancel a second time."""
    dead()
    run(task=TASK, **WHY)
    replay = Replay.objects.get()
    told = run("--cancel", str(replay.pk), by="eva")
    assert "cancelled by eva" in told
    with pytest.raises(CommandError) as caught:
        run("--cancel", str(replay.pk))
    assert caught.value.returncode == 1


def test_nothing_to_replay_is_exit_code_1() -> None:
    """A typo in a group must not look like success."""
    dead()
    for options in ({"preview": True}, WHY):
        with pytest.raises(CommandError, match="no such dead letter") as caught:
            run(group="c" * 32, **options)
        assert caught.value.returncode == 1
    assert not Replay.objects.exists()


def test_everything_that_is_missing_is_said_at_once() -> None:
    """An operator corrects a call once; nothing was changed by the wrong one."""
    with pytest.raises(CommandError, match=r"--task.*--reason.*--pace 'fast'") as caught:
        run(pace="fast")
    assert caught.value.returncode == 2
    with pytest.raises(CommandError, match="did you mean low"):
        run(lane="lwo", **WHY)
    assert run(list=True) == "nothing was ever replayed in bulk\n"
