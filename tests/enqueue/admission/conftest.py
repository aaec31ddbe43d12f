"""Limits for one test."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

Limit = Callable[..., None]


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    """No test meets what another has read of the lanes, or the places that it held."""
    from celery_guard.enqueue.admission import marks, measured, places, turns

    measured.forget()
    turns.forget()
    marked = list(marks.MARKED)
    with places.holding():
        yield
    # The views of these tests are no views of the site.
    marks.MARKED[:] = marked
    measured.forget()
    turns.forget()


@pytest.fixture
def limit(settings: Any) -> Limit:
    """`limit(medium={"depth": 10}, tenants={...}, admission={...}, snapshot={...})`."""

    from celery_guard.enqueue.admission import measured

    def change(**given: Any) -> None:
        guard = copy.deepcopy(settings.CELERY_GUARD)
        for name, values in given.items():
            if name in ("tenants", "admission", "snapshot"):
                guard.setdefault(name, {}).update(values)
            else:
                guard["lanes"].setdefault(name, {})["admission"] = values
        settings.CELERY_GUARD = guard
        measured.forget()

    return change
