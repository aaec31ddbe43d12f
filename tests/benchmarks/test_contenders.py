"""The registry of contenders, and the scenarios they take part in."""

import importlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from benchmarks import contenders, scenarios
from benchmarks.contenders.contender import Contender
from benchmarks.place import ROOT, Place
from benchmarks.turns import Plan

EVERYBODY = {
    "delay",
    "delay_on_commit",
    "celery_outbox",
    "jaiminho",
    "celery_once",
    "celery_singleton",
    "procrastinate",
    "limit_insert",
    "limit_publish",
    "limit_pipeline",
    "celery_guard",
}


@pytest.mark.bar
def test_everybody_a_user_would_pick_instead_takes_part() -> None:
    """The comparison is with what there is, and with what the machine allows."""
    assert contenders.registry().keys() >= EVERYBODY


def test_the_registry_needs_no_peer_and_no_settings() -> None:
    """Whoever lacks a peer can still list, plan and run the others."""
    code = (
        "import sys; from benchmarks.contenders import registry; registry();"
        "found = {'django', 'celery', 'jaiminho', 'procrastinate'} & set(sys.modules);"
        "sys.exit(f'imported {found}' if found else 0)"
    )
    found = Place().environment()
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=found, check=True)


@pytest.mark.parametrize("name", contenders.MODULES)
def test_every_module_has_contenders(name: str) -> None:
    """A module of the registry that holds nobody is a mistake."""
    module = importlib.import_module(f"benchmarks.contenders.{name}")
    assert module.CONTENDERS
    assert all(isinstance(one, Contender) and one.name for one in module.CONTENDERS)


def one_of_each_family() -> Iterator[Contender]:
    """The first contender of each module and package: the others differ by a setting."""
    families: set[tuple[str, str | None]] = set()
    for one in contenders.registry().values():
        family = type(one).__module__, one.package
        if family not in families:
            families.add(family)
            yield one


@pytest.mark.parametrize("contender", list(one_of_each_family()), ids=lambda one: one.name)
def test_an_installed_contender_starts(contender: Contender) -> None:
    """Where a contender's package is installed, its app and its one task can be made."""
    if not contender.installed():
        pytest.skip(f"{contender.package} is not installed")
    place = Place(
        database_url="postgresql://nobody@127.0.0.1:1/none",
        redis_url="redis://127.0.0.1:1/0",
        contender=contender.name,
    )
    code = "import django; django.setup(); from benchmarks.celery_app import work; work.name"
    made = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=place.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize(
    "contender", list(contenders.registry().values()), ids=lambda one: one.name
)
def test_a_contender_takes_part_in_scenarios_that_exist(contender: Contender) -> None:
    """A name that is no scenario would never be measured."""
    assert contender.scenarios <= set(scenarios.NAMES)


def test_an_unknown_parameter_is_refused() -> None:
    """A parameter that a scenario has not would change nothing, in silence."""
    with pytest.raises(ValueError, match="has no parameter jbos"):
        Plan(scenario="enqueue", contenders=("none",), rounds=1, params={"jbos": 3}).lines()


def test_variants_measure_one_contender_several_ways() -> None:
    """A variant's parameters come on top of the plan's, and those on top of the defaults."""
    plan = Plan(
        scenario="relay",
        contenders=(),
        rounds=1,
        params={"rows": 7},
        variants={"many": ("celery_guard", {"done": 9})},
    )
    assert plan.lines() == {"many": ("celery_guard", {"rows": 7, "done": 9, "seconds": 120.0})}


def test_a_place_survives_the_environment() -> None:
    """A child process finds exactly the place its parent had."""
    place = Place(database_url="postgresql://a:b@h:1/d", redis_url="redis://h:2/3", queue="q")
    code = "from benchmarks.place import here; print(here().counters_url, here().queue)"
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=place.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == ["redis://h:2/4", "q"]
