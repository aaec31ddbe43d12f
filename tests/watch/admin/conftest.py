"""Fixtures of the admin's tests. Models can be imported only after Django is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django.test import Client

    from tests.watch.admin.operators import Operator


@pytest.fixture
def operator(db: None) -> Operator:
    """`operator("replay_job")`: a client of a staff user who may view, and what is named."""
    from tests.watch.admin.operators import log_in

    return log_in


@pytest.fixture
def viewer(operator: Operator) -> Client:
    """May look, and nothing else."""
    return operator()
