"""Its one task."""

from celery_guard import guarded_task


@guarded_task(key="double:{number}")
def double(number: int) -> int:
    """Something to see come back."""
    return 2 * number
