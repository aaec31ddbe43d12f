"""The hooks that the settings name."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from celery_guard.watch.status.hooks import hook
from tests.watch.status.site import STATUS, owns

HERE = "tests.watch.status.site"


def test_a_hook_is_the_callable_at_its_path() -> None:
    """Imported once, at its first use."""
    assert hook("status.owner", STATUS["owner"]) is owns


@pytest.mark.parametrize("path", [f"{HERE}.no_such", "no.such.module", f"{HERE}.not_callable"])
def test_a_wrong_path_names_its_setting(path: str) -> None:
    """Never a silent "nobody"."""
    with pytest.raises(ImproperlyConfigured, match=r"status\.owner"):
        hook("status.owner", path)
