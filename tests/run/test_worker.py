"""What the worker's main process learns of its pool children."""

from collections.abc import Callable

import pytest
from celery.concurrency.asynpool import AsynPool
from celery.signals import worker_before_create_process
from kombu.asynchronous import Hub

from celery_guard.run.worker import LOOKS


class _Pool:
    """Celery's pool where a child dies: it can be reaped at the third look, or never."""

    def __init__(self, reaped_at: int) -> None:
        self.looks = 0
        self._pool = ["child"]
        self._reaped_at = reaped_at

    def _event_process_exit(self, hub: Hub, process: str) -> None:
        self.maintain_pool()

    def maintain_pool(self) -> None:
        self.looks += 1
        if self.looks == self._reaped_at:
            self._pool.clear()


@pytest.fixture
def after() -> list[Callable[[], None]]:
    """What the hub was asked to do later."""
    return []


@pytest.fixture
def hub(after: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch) -> Hub:
    """An event loop in which time passes when the test says so."""
    hub = Hub()
    monkeypatch.setattr(
        hub, "call_later", lambda seconds, act, *given: after.append(lambda: act(*given))
    )
    return hub


@pytest.mark.parametrize(("reaped_at", "looks"), [(3, 3), (0, LOOKS + 1)])
def test_a_child_is_looked_at_until_it_can_be_reaped(
    reaped_at: int, looks: int, hub: Hub, after: list[Callable[[], None]]
) -> None:
    """Its files close before its death can be seen; one that lives on is not looked at for ever."""
    pool = _Pool(reaped_at)
    for _ in range(2):
        worker_before_create_process.send(sender=pool)
    pool._event_process_exit(hub, "child")
    while after:
        after.pop()()
    assert pool.looks == looks


def test_celery_still_looks_there() -> None:
    """The names in Celery's pool that this hangs on."""
    assert callable(AsynPool._event_process_exit)
    assert callable(AsynPool.maintain_pool)
