"""Guarded tasks that the tests ask places for. No worker runs them."""

from celery_guard import UNKEYED, guarded_task


@guarded_task(key=UNKEYED)
def work(value: int = 0) -> None:
    """The usual lane."""


@guarded_task(key=UNKEYED, lane="high")
def urgent(value: int = 0) -> None:
    """The highest lane."""


@guarded_task(key=UNKEYED, lane="low")
def idle(value: int = 0) -> None:
    """The lowest lane."""


@guarded_task(key="once:{name}")
def once(name: str) -> None:
    """Has a key."""


@guarded_task(key=UNKEYED, tenant="{shop}")
def of_shop(shop: str, value: int = 0) -> None:
    """Belongs to a tenant."""


@guarded_task(key=UNKEYED, tenant="{shop}", lane="low")
def idle_of_shop(shop: str) -> None:
    """The same in the lowest lane."""


@guarded_task(key="elsewhere:{name}", using="other")
def elsewhere(name: str) -> None:
    """Its ledger is on the other database."""
