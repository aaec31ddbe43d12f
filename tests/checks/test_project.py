"""The setting, the Celery app, the metrics page."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from celery import Celery
from django.conf import settings as django_settings
from django.core import mail
from pytest_django import Settings

from celery_guard.checks import CHECKS
from celery_guard.watch.checks import project

Find = Callable[..., dict[str, str]]
Site = Callable[..., Celery]


def test_nothing_is_said_when_all_is_well(site: Site, find: Find) -> None:
    """Silence is the normal answer."""
    site()
    assert find() == {}


@pytest.mark.bar
def test_all_faults_of_the_setting_come_in_one_message(
    settings: Settings, site: Site, find: Find
) -> None:
    """Each with the nearest known name; the other checks keep still."""
    settings.CELERY_GUARD = {
        "outbox": {"captrue": "all"},
        "lanes": {"high": {"objective": -1}},
        "usign": "default",
    }
    site(task_serializer="json")
    found = find()
    assert set(found) == {"E001"}
    for part in ("capture", "lanes.high.objective", "using"):
        assert part in found["E001"]


@pytest.mark.parametrize("url", ["localhost:6379", "redi://:secret@cache:6379/0", 6379])
def test_an_address_that_is_none_of_redis_is_told_without_what_it_holds(
    settings: Settings, find: Find, url: object
) -> None:
    """At the start, and not when the first wake is lost; a password in it is nobody's business."""
    settings.CELERY_GUARD = {"redis": url}
    said = find()["E001"]
    assert "redis must be a URL that begins with redis://" in said
    assert "secret" not in said


def test_a_setting_that_is_no_dict_is_told_too(settings: Settings, find: Find) -> None:
    """The first mistake of all."""
    settings.CELERY_GUARD = ["lanes"]
    assert set(find()) == {"E001"}


def test_capturing_all_is_at_least_once(settings: Settings, site: Site, find: Find) -> None:
    """Said once, and can be silenced like any check."""
    site()
    settings.CELERY_GUARD = {"outbox": {"capture": "all"}}
    assert set(find()) == {"W004"}
    settings.SILENCED_SYSTEM_CHECKS = ["celery_guard.W004"]
    assert {message for message in find() if message != "W004"} == set()


def test_keys_outlive_what_ended_under_them(settings: Settings, site: Site, find: Find) -> None:
    """Otherwise a late webhook starts over."""
    site()
    settings.CELERY_GUARD = {"retention": {"keys": 86400}}
    found = find()
    assert set(found) == {"W009"}
    assert '"keys": 2592000' in found["W009"]


def test_hooks_that_cannot_be_called_are_errors(settings: Settings, site: Site, find: Find) -> None:
    """Every request for a status would fail; each hook is told."""
    site()
    settings.CELERY_GUARD = {"status": {"owner": "no.such", "result": "os.sep"}}
    assert "status.owner" in find()["E008"] or "status.result" in find()["E008"]
    assert len(project.check_hooks()) == 2
    settings.CELERY_GUARD = {"status": {"owner": "os.fspath", "result": "os.fspath"}}
    assert "E008" not in find()


def test_limits_of_tenants_that_cannot_be_called_are_errors(
    settings: Settings, site: Site, find: Find
) -> None:
    """They would be asked for nothing, and every tenant would have the same."""
    site()
    for path, said in (("no.such", "No module named 'no'"), ("os.sep", "can't be called")):
        settings.CELERY_GUARD = {"tenants": {"limits": path}}
        assert set(find()) == {"E009"}
        assert said in find()["E009"]
    settings.CELERY_GUARD = {"tenants": {"limits": "os.fspath"}}
    assert find() == {}


def test_an_app_that_publishes_past_the_guard_is_an_error(site: Site, find: Find) -> None:
    """Its messages would be sent before the commit."""
    site(guarded=False)
    assert set(find()) == {"E007"}


def process(settings: str, *command: str) -> subprocess.CompletedProcess[str]:
    """A Python process with these settings of the tests."""
    return subprocess.run(
        [sys.executable, *command],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": f"tests.checks.{settings}",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )


def appless(*command: str) -> subprocess.CompletedProcess[str]:
    """A management command of a project whose package does not import its app."""
    return process("appless_settings", "-m", "django", *command)


def both_faults(said: str) -> bool:
    """Whether both mistakes of ``wrong_settings`` are told, with what was meant."""
    return "did you mean 'dependencies'?" in said and "did you mean 'capture'?" in said


@pytest.mark.bar
def test_a_wrong_setting_reaches_check_and_doctor() -> None:
    """Neither the set-up nor the site's own tasks die of it first."""
    check = process("wrong_settings", "-m", "django", "check")
    assert check.returncode == 1
    assert CHECKS["E001"].full_id in check.stderr
    assert both_faults(check.stderr)
    assert "Traceback" not in check.stderr
    doctor = process("wrong_settings", "-m", "django", "guard_doctor", "--no-canary")
    assert doctor.returncode == 1
    assert "check E001" in doctor.stdout
    assert both_faults(doctor.stdout)
    assert "Traceback" not in doctor.stderr


_DECLARE = """
import django
django.setup()
from celery_guard import guarded_task
@guarded_task(key="{a}", dependency="provider", lane="of its own")
def task(a): ...
task.name
"""


@pytest.mark.parametrize(
    "command",
    [
        ("-m", "django", "guard_relay", "--once"),
        ("-m", "django", "guard_doctor", "--workers"),
        ("-m", "celery", "-A", "tests.project", "worker", "--pool", "solo"),
        ("-c", _DECLARE + "task.delay(1)"),
    ],
    ids=["relay", "worker lines", "worker", "enqueue"],
)
def test_nothing_works_with_a_wrong_setting(command: tuple[str, ...]) -> None:
    """Whatever would act on a guess refuses instead, and says every fault."""
    answer = process("wrong_settings", *command)
    assert answer.returncode != 0
    assert both_faults(answer.stderr + answer.stdout)


def test_tasks_are_declared_whatever_the_setting_says() -> None:
    """What they name can't be known then; what is wrong in itself is still told."""
    assert process("wrong_settings", "-c", _DECLARE).returncode == 0
    answer = process("wrong_settings", "-c", _DECLARE.replace("{a}", "{b}"))
    assert "which is no argument" in answer.stderr


def test_a_relay_without_an_app_refuses_to_run() -> None:
    """Celery's stand-in would publish to a broker that nobody meant."""
    answer = appless("guard_relay", "--once")
    assert answer.returncode == 1
    assert "no Celery app" in answer.stderr


def test_without_a_celery_app_nothing_is_configured() -> None:
    """A real project whose package does not import its app."""
    answer = appless("check")
    assert answer.returncode == 1
    assert CHECKS["E003"].full_id in answer.stderr
    assert "import app as celery_app" in answer.stderr


def test_eager_tasks_are_unwise_outside_tests(
    site: Site, find: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Django's test environment they are the user's business."""
    site(task_always_eager=True)
    assert find() == {}
    monkeypatch.delattr(mail, "outbox")
    assert set(find()) == {"W001"}


@pytest.mark.parametrize(
    ("installed", "multiprocess", "routed", "said"),
    [
        (True, True, False, {"W007"}),
        (True, True, True, set()),
        (True, False, False, set()),
        (False, True, False, set()),
    ],
)
def test_another_metrics_page_that_leaves_the_lanes_out(
    installed: bool,
    multiprocess: bool,
    routed: bool,
    said: set[str],
    site: Site,
    find: Find,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only where all three come together, and the guard's own page is not there."""
    site()
    if installed:
        # The list alone: the registry of apps stays as it is.
        apps = [*django_settings.INSTALLED_APPS, "django_prometheus"]
        monkeypatch.setattr(project.settings, "INSTALLED_APPS", apps)
    if multiprocess:
        monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/nowhere")
    settings.ROOT_URLCONF = "tests.watch.urls" if routed else "tests.checks.no_urls"
    assert set(find()) == said


def test_marked_views_need_the_middleware(
    settings: Settings, site: Site, find: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark that nothing reads would let every request through, silently."""
    site()
    monkeypatch.setattr(project, "MARKED", ["orders.views.place"])
    found = find()
    assert set(found) == {"W014"}
    assert "orders.views.place" in found["W014"]
    settings.MIDDLEWARE = ["celery_guard.middleware.AdmissionMiddleware"]
    assert find() == {}
