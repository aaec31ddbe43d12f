"""Tasks that declare a tenant and come to a bad end, and what hears of it, which declares none."""

import os
import signal
import time

from celery_guard import UNKEYED, guarded_task
from tests.project.shop.witness import leave_trace


@guarded_task(key="rented:{name}", tenant="{shop}", time_limit=1)
def rent(name: str, shop: str, way: str) -> None:
    """Sleep over its hard limit, or end its own process."""
    leave_trace(name)
    if way == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


@guarded_task(key=UNKEYED)
def hear(task_id: str) -> None:
    """An errback."""
    leave_trace("heard")


@guarded_task(key=UNKEYED)
def gather_rents(rents: object) -> None:
    """A chord's body."""
