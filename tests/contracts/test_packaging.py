"""The project's own description is true: versions, dependencies, what tox tries, what scripts run."""

import ast
import configparser
import itertools
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from urllib.parse import urlsplit

import pytest
from django.db import connection

from tests.kit.ground import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# A module's package, where the two are named differently.
PACKAGES = {
    "opentelemetry": "opentelemetry-api",
    "prometheus_client": "prometheus-client",
    "rest_framework": "djangorestframework",
    "vine": "celery",
    "billiard": "celery",
}

AXES = (
    ("py311", "py312", "py313"),
    ("django52", "django60", "django61"),
    ("celery55", "celery56", "celery57"),
    ("postgres", "mariadb"),
    ("redis", "rabbitmq"),
)
"""What tox tries."""


def declared():
    """The names of all packages that an installation brings or that an extra offers."""
    extras = PROJECT["optional-dependencies"].values()
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    return {re.match(r"[\w-]+", line).group().lower() for line in lines}


def test_nothing_is_imported_that_is_not_declared():
    """Every third-party module that the package imports is a dependency or an extra."""
    modules = set()
    for path in (ROOT / "celery_guard").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
    foreign = modules - set(sys.stdlib_module_names) - {"celery_guard"}
    assert {PACKAGES.get(name, name).replace("_", "-") for name in foreign} <= declared()


def test_tox_tries_every_version_the_classifiers_name():
    """A classifier for a Django or a Python that is never run would be a lie."""
    tried = set(itertools.chain.from_iterable(environments()))
    for classifier in PROJECT["classifiers"]:
        if match := re.fullmatch(r"Framework :: Django :: (\d)\.(\d)", classifier):
            assert f"django{''.join(match.groups())}" in tried
        if match := re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", classifier):
            assert f"py3{match.group(1)}" in tried


def environments():
    """Every environment of tox as its factors, with the braces multiplied out."""
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini")
    for line in tox["tox"]["env_list"].split():
        parts = [part.split(",") for part in re.split(r"[{}]", line)]
        yield from ("".join(choice).split("-") for choice in itertools.product(*parts))


def test_every_pair_of_versions_is_tried_once():
    """Whatever can be installed together meets in at least one environment."""
    tried = {pair for factors in environments() for pair in itertools.combinations(factors, 2)}
    # Django 6 needs Python 3.12.
    impossible = {("py311", "django60"), ("py311", "django61")}
    possible = {
        pair
        for one, other in itertools.combinations(AXES, 2)
        for pair in itertools.product(one, other)
    }
    assert possible - tried == impossible


def test_tox_has_no_axis_beside():
    """A version that is added to one environment joins the pairs."""
    assert {tuple(factors) for factors in environments()} <= set(itertools.product(*AXES))


@pytest.mark.skipif("TOX_ENV_NAME" not in os.environ, reason="not an environment of tox")
def test_an_environment_holds_what_its_name_says(broker: str):
    """Some package that wants another version must not replace it: the run would show nothing."""
    version = {
        "py": "".join(map(str, sys.version_info[:2])),
        **{name: "".join(metadata.version(name).split(".")[:2]) for name in ("django", "celery")},
    }
    names = {f"{name}{number}" for name, number in version.items()}
    names.add({"mysql": "mariadb", "postgresql": "postgres"}[connection.vendor])
    names.add({"redis": "redis", "amqp": "rabbitmq"}[urlsplit(broker).scheme])
    assert set(os.environ["TOX_ENV_NAME"].split("-")) <= names


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-demo.lock"])
def test_locks_are_whole(name):
    """Every package of a lock file is pinned and carries hashes."""
    entries = re.split(r"\n(?=\S)", (ROOT / name).read_text())
    packages = [entry for entry in entries if not entry.startswith("#")]
    assert packages
    for entry in packages:
        assert re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry


def test_the_two_locks_agree():
    """One environment serves the demo and the tests, so both hold the same versions."""
    pins = [
        set(re.findall(r"^[\w.-]+==[^\s;]+", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements-demo.lock", "requirements.lock")
    ]
    assert pins[0] <= pins[1]


@pytest.mark.parametrize(
    "script", ["demo", "test", "check", "lock", "bench", "_venv", "../.ci/run"]
)
def test_scripts_are_well_formed(script):
    """Every script can be read by bash, and those that are called may be executed."""
    path = ROOT / "scripts" / script
    assert subprocess.run(["bash", "-n", path]).returncode == 0
    assert script.startswith("_") or os.access(path, os.X_OK)
