"""Two real beats on one site: each tick is one job."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from celery_guard.jobs.models import Job
from tests.kit.processes import Process, Processes
from tests.kit.wait import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


def ticks(beat: Process) -> int:
    """How many the beat says that it has sent."""
    return beat.log.count("Sending due task twice")


def run_two(processes: Processes, app: str, *options: str, env: Any = None) -> list[Any]:
    """The keys of the jobs of two beats that each sent eight ticks."""
    argv = ["-m", "celery", "-A", app, "beat", "-l", "INFO", "--pidfile=", *options]
    places = [("-s", str(processes.folder / f"schedule-{n}")) for n in range(2)]
    beats = [processes.python(*argv, *place, env=env) for place in places]
    wait_for(lambda: min(map(ticks, beats)) >= 8, timeout=60, what="eight ticks of each beat")
    for beat in beats:
        beat.signal(signal.SIGTERM)
        beat.wait()
    keys = list(Job.objects.filter(task__endswith="add").values_list("key", flat=True))
    assert len(keys) <= sum(map(ticks, beats)) - 4, "some ticks were sent by both"
    # Neither beat is told of an error where the other was first.
    assert not any("Message Error" in beat.log for beat in beats)
    return keys


def test_two_beats_run_a_tick_once(processes: Processes) -> None:
    """Both send all the time; the ledger holds every tick once, and none without a name."""
    keys = run_two(processes, "tests.flows.beat_site")
    assert all(str(key).startswith("tick:twice@") for key in keys)


@pytest.fixture
def beat_tables(processes: Processes) -> Iterator[dict[str, str]]:
    """The tables of django-celery-beat, for the processes that get this environment."""
    pytest.importorskip("django_celery_beat", exc_type=ImportError)
    env = {"DJANGO_SETTINGS_MODULE": "tests.flows.beat_settings"}
    migrate = ["-m", "tests.project.manage", "migrate", "django_celery_beat"]
    made = processes.python(*migrate, env=env)
    assert made.wait(timeout=60) == 0, made.log
    yield env
    assert processes.python(*migrate, "zero", env=env).wait(timeout=60) == 0


def test_so_do_two_beats_of_django_celery_beat(
    processes: Processes, beat_tables: dict[str, str]
) -> None:
    """Its scheduler has classes of its own, and one table for both beats."""
    scheduler = ("-S", "django_celery_beat.schedulers:DatabaseScheduler")
    keys = run_two(processes, "tests.project.celery", *scheduler, env=beat_tables)
    assert all(str(key).startswith("tick:twice@") for key in keys)
