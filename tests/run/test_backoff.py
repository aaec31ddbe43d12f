"""When an attempt is tried again, and how often."""

from typing import Any

import pytest
from celery import Task
from hypothesis import given
from hypothesis import strategies as st

from celery_guard import UNKEYED, GuardedTask
from celery_guard.run.backoff import backoff, budget


def _task(guarded: dict[str, Any] | None = None, **options: Any) -> Task:
    body = {"name": "tests.none", "run": lambda self: None, "key": UNKEYED}
    return type("made", (GuardedTask,), {**body, **(guarded or {}), **options})()


@given(st.integers(min_value=0, max_value=2**1000))
def test_backoff_never_overflows_and_stays_below_the_cap(failures: int) -> None:
    """Full jitter: at least zero, at most the cap, whatever the number of failures."""
    assert 0 <= backoff(_task(), failures) <= 1


def test_celerys_own_backoff_wins_where_set() -> None:
    """retry_backoff, retry_backoff_max and retry_jitter of the task decide."""
    task = _task(retry_backoff=3, retry_backoff_max=20, retry_jitter=False)
    assert [backoff(task, n) for n in (0, 1, 2, 1000)] == [3, 6, 12, 20]


def test_a_retry_delay_of_the_task_wins() -> None:
    """default_retry_delay counts where the task sets it, and only there."""
    assert backoff(_task(default_retry_delay=7), 5) == 7
    assert backoff(_task(), 0) < 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 10),
        ({"max_retries": 2}, 3),
        ({"max_retries": 0}, 1),
        ({"max_retries": None}, None),
        ({"failures": 4}, 4),
        ({"failures": 4, "max_retries": 9}, 4),
    ],
)
def test_the_budget_of_failures(options: dict[str, Any], expected: int | None) -> None:
    """The guard's failures win, then the task's max_retries (None: no limit), then the setting."""
    assert budget(_task(options)) == expected
