"""A user's own settings never make Django want to write into our migrations."""

import os
import subprocess
import sys

import pytest

from tests.kit.ground import ROOT
from tests.kit.processes import environment

VARIATION = """
import os, sys
from tests.project import settings
for line in os.environ["GUARD_TEST_VARIATION"].split(";"):
    name, value = line.split("=", 1)
    setattr(settings, name, eval(value))
import django
from django.core.management import call_command
django.setup()
call_command("makemigrations", "celery_guard", "--check", "--dry-run")
"""
OTHER_GUARD = "{'lanes': {'express': {}}, 'run': {'lease': 5}, 'outbox': {'payload_limit': 1000}}"


@pytest.mark.mariadb
@pytest.mark.django_db
@pytest.mark.parametrize(
    "variation",
    [
        "DEFAULT_AUTO_FIELD='django.db.models.AutoField'",
        "DEFAULT_AUTO_FIELD='django.db.models.SmallAutoField'",
        "USE_TZ=False;TIME_ZONE='Europe/Berlin'",
        "LANGUAGE_CODE='de';USE_I18N=True",
        f"CELERY_GUARD={OTHER_GUARD}",
        "CELERY_GUARD={}",
    ],
)
def test_no_setting_asks_for_a_migration(variation):
    """`makemigrations --check` is clean whatever the site is set to."""
    run = subprocess.run(
        [sys.executable, "-c", VARIATION],
        env=environment({"GUARD_TEST_VARIATION": variation}),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert os.environ["DJANGO_SETTINGS_MODULE"] == "tests.project.settings"
