"""A user's own settings never make Django want to write into our migrations."""

import os
import subprocess
import sys

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader

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
WAITS = "celery_guard_job_waits"
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


MIGRATED = """
import sys
import django
from django.conf import settings
from django.core.management import call_command
database = {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}
settings.configure(INSTALLED_APPS=["celery_guard"], DATABASES={"default": database})
django.setup()
call_command("migrate", verbosity=0)
from django.db import connection
from celery_guard.models import Job
with connection.cursor() as cursor:
    found = connection.introspection.get_constraints(cursor, Job._meta.db_table)
asked = {constraint.name for constraint in Job._meta.constraints}
assert asked == {name for name in found if name in asked or found[name]["check"]}, sorted(found)
"""


def test_sqlite_checks_what_the_models_say(tmp_path):
    """There a constraint is changed by making the whole table anew, out of what the migration knows."""
    run = subprocess.run(
        [sys.executable, "-c", MIGRATED, str(tmp_path / "site.sqlite3")],
        env={name: v for name, v in environment({}).items() if name != "DJANGO_SETTINGS_MODULE"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.django_db(transaction=True)
def test_the_check_of_a_job_is_added_anew_after_a_step_that_failed():
    """It is valid in the end: PostgreSQL has looked at the rows that were there."""
    if connection.vendor != "postgresql":
        pytest.skip("elsewhere it is one step")
    loader = MigrationLoader(connection)
    at = ("celery_guard", "0007_job_waits")
    (added,) = loader.get_migration(*at).operations
    for _ in range(2):
        with connection.schema_editor(atomic=False) as editor:
            added.database_forwards("celery_guard", editor, None, loader.project_state(at))
    with connection.cursor() as cursor:
        cursor.execute("SELECT convalidated FROM pg_constraint WHERE conname = %s", [WAITS])
        assert cursor.fetchall() == [(True,)]
