"""Every setting is explained where users look, and read by the code."""

import dataclasses
import re

import pytest

from celery_guard import conf
from tests.kit.ground import ROOT

CODE = "\n".join(
    path.read_text() for path in (ROOT / "celery_guard").rglob("*.py") if path.parent.name != "conf"
)


NO_SETTINGS = (
    (conf.Lane, "name"),
    (conf.Dependency, "name"),
    (conf.Settings, "lanes"),
    (conf.Settings, "dependencies"),
)


def settings_of(kind, path=""):
    """The dotted names of all settings."""
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.default_factory):
            yield from settings_of(field.default_factory, f"{path}{field.name}.")
        elif (kind, field.name) not in NO_SETTINGS:
            yield f"{path}{field.name}"


NAMES = [
    *settings_of(conf.Settings),
    *settings_of(conf.Lane, "lanes.<name>."),
    *settings_of(conf.Dependency, "dependencies.<name>."),
]


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_documented(name):
    """The settings reference names each of them in full."""
    reference = "\n".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    assert f"`{name}`" in reference


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_read(name):
    """A setting that nothing reads would be a promise without effect."""
    assert re.search(rf"\.{name.rpartition('.')[2]}\b", CODE)
