"""A site that says who owns what, and a client of somebody who owns jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django.test import Client
    from pytest_django import Settings


@pytest.fixture
def site(settings: Settings) -> Settings:
    """The hooks of `tests.watch.status.site`."""
    from tests.watch.status.site import STATUS

    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "status": STATUS}
    return settings


@pytest.fixture
def ada(db: None, site: Settings) -> Client:
    """Logged in as the owner of the tenant `ada`'s jobs."""
    from tests.watch.status.asking import logged_in

    return logged_in("ada")
