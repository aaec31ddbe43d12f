"""Jobs that call the two services, and one that calls nobody."""

import time

from celery_guard import UNKEYED, guarded_task
from tests.project.shop.witness import leave_trace


@guarded_task(key=UNKEYED, dependency="north")
def call_north() -> None:
    """Leaves the time of its call."""
    leave_trace("north", repr(time.monotonic()))


@guarded_task(key=UNKEYED, dependency="south")
def call_south() -> None:
    """Leaves the time of its call."""
    leave_trace("south", repr(time.monotonic()))


@guarded_task(key=UNKEYED, lane="high")
def pass_by() -> None:
    """What comes at all times."""
