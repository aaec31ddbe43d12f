"""Guarded tasks for the tests of this room, in the test site's app. No worker runs them."""

from typing import Any

from celery import Celery, Task, current_app, shared_task

from celery_guard import UNKEYED, guarded_task
from tests.enqueue.forms import PLACE, task_bodies

for _name, _body in task_bodies().items():
    guarded_task(key=UNKEYED, name=f"{PLACE}.{_name}")(_body)


@guarded_task(key="keyed:{name}")
def keyed(name: Any, value: Any = None, *more: Any, **options: Any) -> None:
    """A key from one of its arguments."""


@guarded_task(key="high:{name}", lane="high")
def high(name: str) -> None:
    """The same in another lane."""


@guarded_task(key="returned:{name}", on_failed="return")
def returned(name: str, value: int = 0) -> None:
    """A failed job is left as it is."""


@guarded_task(key="elsewhere:{name}", using="other")
def elsewhere(name: str, value: int = 0) -> None:
    """Its ledger lives on the other database."""


@guarded_task(key=UNKEYED)
def unkeyed(value: Any = None) -> None:
    """Every call is a job."""


@guarded_task(key="silent:{name}", ignore_result=True)
def silent(name: str) -> None:
    """Nobody keeps its result."""


@guarded_task(key="bound:{name}", bind=True, tenant="{shop}")
def bound(self: "Task[Any, Any]", name: str, shop: int) -> None:
    """A task that gets itself as its first argument."""


@shared_task
def plain(value: Any = None) -> None:
    """A task that is not guarded."""


def app() -> Celery:
    """The test site's app."""
    found: Celery = current_app._get_current_object()  # type: ignore[attr-defined]
    return found


def form_task(name: str) -> Any:
    """One of the tasks of the table of forms."""
    return app().tasks[f"{PLACE}.{name}"]
