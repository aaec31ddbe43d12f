"""A task of a busy site is moved from off to on, with real workers and without a stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from django.db import connections

from celery_guard.enqueue.rollout import reading
from celery_guard.models import Job, Mismatch
from tests.enqueue.rollout.stages import set_to
from tests.flows.staff import hire
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop.models import Invoice
from tests.project.shop.tasks import dies
from tests.run.marks import on_database
from tests.run.tasks import invoice_once

pytestmark = [*on_database, pytest.mark.mariadb]

EACH = 60
CLIENTS = 3


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    yield
    reading.forget()


class Client(threading.Thread):
    """Submits one order after the other until it is told to stop."""

    def __init__(self, first: int, stop: threading.Event) -> None:
        super().__init__()
        self.orders: list[int] = []
        self.fault: BaseException | None = None
        self._first, self._stop_now = first, stop

    def run(self) -> None:
        try:
            while not self._stop_now.is_set():
                order = self._first + len(self.orders) * CLIENTS
                invoice_once.submit(order)
                self.orders.append(order)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.fault = error
        finally:
            connections.close_all()


@pytest.mark.bar
@pytest.mark.timeout(240)
def test_no_invoice_is_lost_or_doubled_on_the_way(processes: Processes) -> None:
    """Off, compare, canary, on, back to off and on, under load: one invoice an order, no mismatch."""
    set_to(invoice_once, "off")
    hire(processes, concurrency=2)
    stop = threading.Event()
    clients = [Client(n, stop) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        for mode in ("off", "compare", "canary:30", "on", "off", "canary:70", "on"):
            set_to(invoice_once, mode)
            before = sum(len(client.orders) for client in clients)
            wait_for(
                lambda before=before: sum(len(client.orders) for client in clients) > before + EACH,
                timeout=60,
                what=f"a load under {mode}",
            )
    finally:
        stop.set()
        for client in clients:
            client.join()
    assert [client.fault for client in clients] == [None] * CLIENTS
    wait_for(
        lambda: not Job.objects.exclude(state="succeeded").exists(),
        timeout=90,
        what="all jobs to succeed",
    )
    orders = sorted(order for client in clients for order in client.orders)
    assert sorted(Invoice.objects.values_list("order_id", flat=True)) == orders
    assert set(Job.objects.values_list("mode", flat=True)) == {"compare", "canary", "on"}
    assert not Mismatch.objects.exists()


@pytest.mark.bar
@pytest.mark.timeout(120)
def test_a_planted_difference_is_found_by_a_worker(processes: Processes) -> None:
    """The worker's release returns something else: it is kept once, counted, and no row stays."""
    set_to(invoice_once, "compare")
    hire(processes, env={"GUARD_TEST_OTHER_RESULT": "1"})
    for order in range(5):
        assert invoice_once.submit(order).result == {"order": order, "state": "issued"}
    wait_for(
        lambda: Job.objects.filter(state="succeeded").count() == 5,
        timeout=60,
        what="the comparisons",
    )
    found = Mismatch.objects.get()
    assert (found.difference, found.count) == ("result.state", 5)
    assert Invoice.objects.count() == 5


@pytest.mark.timeout(120)
def test_a_plain_run_that_dies_is_told_by_celery(processes: Processes) -> None:
    """No job will be rescued for it, so Celery's own end must reach whoever waits."""
    set_to(dies, "off")
    hire(processes)
    handle = dies.delay("a", 99)
    wait_for(lambda: handle.state == "FAILURE", timeout=60, what="Celery to tell of the lost child")
    assert "WorkerLostError" in repr(handle.result)
    assert not Job.objects.exists()
