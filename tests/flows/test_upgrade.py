"""A rolling upgrade: the tables are this release's, some processes still run the one before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_guard.enqueue.many import enqueue_many
from celery_guard.models import Job, WorkerPresence
from tests.flows.staff import hire
from tests.kit.ground import ROOT
from tests.kit.processes import Processes
from tests.kit.released import last_release, unpack
from tests.kit.wait import wait_for
from tests.project.shop.models import Invoice
from tests.run.marks import on_database
from tests.run.tasks import invoice_once, refresh_seldom

pytestmark = [*on_database, pytest.mark.mariadb, pytest.mark.timeout(400)]

# Every way in which a process of a release writes jobs: one by one, in bulk, folded.
ENQUEUE = """
import sys, django
django.setup()
import celery_guard, tests.run.site
from celery_guard.enqueue.many import enqueue_many
from tests.run.tasks import invoice_once, refresh_seldom
print(celery_guard.__file__)
first, count = map(int, sys.argv[1:])
for order in range(first, first + count):
    invoice_once.delay(order)
enqueue_many([invoice_once.s(order) for order in range(first + count, first + 2 * count)])
for _ in range(5):
    refresh_seldom.delay(f"of-{first}")
"""


@pytest.fixture
def before(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Processes that run the release before, on the tables of this one."""
    folder = tmp_path_factory.mktemp("before")
    release = unpack(last_release(), folder)
    running = Processes(folder, release)
    yield running
    running.end()


def enqueue_as(running: Processes, root: Path, first: int, count: int) -> None:
    """Have a web process of that tree make ``2 * count`` invoices' jobs and five of one key."""
    env = {"DJANGO_SETTINGS_MODULE": "tests.project.settings"}
    web = running.python("-c", ENQUEUE, str(first), str(count), env=env)
    assert web.wait(timeout=60) == 0, web.log
    assert str(root / "celery_guard") in web.log


def wait_for_all(orders: range) -> None:
    """Every job ended well, and every order has one invoice."""
    wait_for(
        lambda: not Job.objects.exclude(state__in=("succeeded", "superseded")).exists(),
        timeout=120,
        what="the end of all jobs",
    )
    invoices = Counter(Invoice.objects.values_list("order_id", flat=True))
    assert invoices == Counter(orders)


def test_the_release_before_works_on_these_tables(before: Processes, processes: Processes) -> None:
    """Migrate first: until the code follows, old web processes, workers and relays go on."""
    enqueue_as(before, before.root, 0, 5)
    hire(before, concurrency=2)
    for order in range(10, 20):
        invoice_once.delay(order)
    enqueue_many([invoice_once.s(order) for order in range(20, 30)])
    refresh_seldom.delay("of-10")
    wait_for_all(range(30))


def test_both_work_side_by_side(before: Processes, processes: Processes) -> None:
    """Each runs what the other asked for, and each goes on alone when the other is killed."""
    old, new = hire(before, concurrency=2), hire(processes, concurrency=2)
    wait_for(lambda: WorkerPresence.objects.count() == 2, timeout=60, what="both reports")
    enqueue_as(before, before.root, 0, 10)
    enqueue_as(processes, ROOT, 20, 10)
    wait_for_all(range(40))
    old.kill()
    enqueue_as(before, before.root, 40, 5)
    wait_for_all(range(50))
    hire(before, concurrency=2)
    new.kill()
    enqueue_as(processes, ROOT, 50, 5)
    wait_for_all(range(60))
