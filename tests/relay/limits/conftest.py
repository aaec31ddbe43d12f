"""The fixtures of this folder."""

from typing import Any

import pytest


@pytest.fixture(params=["redis", "database"])
def limits(request: pytest.FixtureRequest, transactional_db: None) -> Any:
    """The store, once in each form."""
    # Not above: Django is set up after this file is read.
    from tests.relay.limits.stores import store

    return store(request.param)
