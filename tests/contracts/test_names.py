"""The public names: few, all of them there, all of them explained."""

import os
import subprocess
import sys
import tomllib

import pytest

import celery_guard
from celery_guard import errors
from tests.kit.ground import ROOT

MOST = 25


def test_the_public_names_are_complete_and_few():
    """Everything in `__all__` can be imported, is listed by `dir`, and there are at most 25."""
    assert len(celery_guard.__all__) <= MOST
    assert len(celery_guard.__all__) == len(set(celery_guard.__all__))
    for name in celery_guard.__all__:
        assert getattr(celery_guard, name) is not None
        assert name in dir(celery_guard)


def test_every_public_class_and_function_says_what_it_guarantees():
    """A public name without a docstring is not finished."""
    silent = [
        name
        for name in celery_guard.__all__
        if callable(value := getattr(celery_guard, name)) and not (value.__doc__ or "").strip()
    ]
    assert silent == []


def test_every_error_is_public_or_below_one_that_is():
    """Whoever catches `GuardError` catches all of them."""
    own = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and value.__module__ == errors.__name__
    ]
    stray = [
        error
        for error in own
        if issubclass(error, Exception) and not issubclass(error, errors.GuardError)
    ]
    assert stray == []


def test_a_default_message_shows_no_markup():
    """It is read in a log: `atomic=False` has one backquote on each side, as on the pages."""
    told = [str(kind()) for kind in (errors.EffectInTransaction, errors.PayloadTooLarge)]
    assert "declare the task `atomic=False`" in told[0]
    assert "larger than `outbox.payload_limit`" in told[1]


def test_importing_the_package_needs_no_settings():
    """`import celery_guard` works before Django is set up, and loads neither Django nor Celery."""
    code = "import sys, celery_guard; sys.exit('django' in sys.modules or 'celery' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={}).returncode == 0


@pytest.mark.parametrize("name", ["GuardedTask", "guarded_task", "enqueue_many"])
def test_a_name_that_is_loaded_too_early_says_where_it_belongs(name):
    """Before Django's apps are loaded, models can't be; the error names the way out."""
    code = f"from celery_guard import {name}"
    env = {"DJANGO_SETTINGS_MODULE": "tests.project.settings", "PYTHONPATH": str(ROOT)}
    told = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True
    )
    assert told.returncode == 1
    assert told.stderr.splitlines()[-1].startswith("django.core.exceptions.AppRegistryNotReady")
    assert f"celery_guard.{name}" in told.stderr
    assert "tasks module" in told.stderr


@pytest.mark.parametrize("name", ["GuardError", "Permanent", "RetryAfter", "UNKEYED"])
def test_errors_and_verdicts_are_there_before_the_apps(name):
    """Settings and the module of the Celery app may name them."""
    code = f"from celery_guard import {name}"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_version_is_told_once():
    """The package and the project's description agree."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == celery_guard.__version__
