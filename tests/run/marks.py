"""Marks that this folder's test files share."""

import pytest

on_database = [
    pytest.mark.django_db(transaction=True),
    # Celery's Redis backend still calls what redis-py has renamed.
    pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning"),
]
