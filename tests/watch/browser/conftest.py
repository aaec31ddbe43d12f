"""A real browser, and the site on a port of its own under a strict Content-Security-Policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pytest_django.live_server_helper import LiveServer

from tests.watch.browser.found import CHROMIUM, DRIVER

if TYPE_CHECKING:
    from pytest_django import Settings

    from tests.watch.browser.window import Window


@pytest.fixture(scope="session")
def window() -> Iterator[Window]:
    """One browser for all tests of this process."""
    from tests.watch.browser.window import Window

    assert CHROMIUM is not None
    assert DRIVER is not None
    window = Window(CHROMIUM, DRIVER)
    try:
        yield window
    finally:
        window.close()


@pytest.fixture
def address(window: Window, transactional_db: None, settings: Settings) -> Iterator[str]:
    """Where the site is; its jobs belong to the user whose name is the tenant."""
    from tests.watch.status.site import STATUS

    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "status": STATUS}
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.watch.browser.strict.policy"]
    server = LiveServer("127.0.0.1")
    try:
        yield server.url
    finally:
        server.stop()
