"""The kit's own promises: real workers and relays, on both brokers, and none left behind."""

import pytest
from django.db import transaction

from tests.kit.wait import wait_for
from tests.project.shop.models import Mark
from tests.project.shop.tasks import mark

QUIET = {"GUARD_TEST_HOST_RELAY": "0"}


def test_a_worker_runs_what_was_committed(broker, worker):
    """A worker of the kit hosts a relay and runs a job of this test's database and broker."""
    worker()
    with transaction.atomic():
        mark.delay("seen", "here")
    wait_for(lambda: Mark.objects.filter(name="seen").exists(), what="the mark")


def test_a_relay_of_its_own_feeds_a_worker_that_hosts_none(broker, worker, relay):
    """`GUARD_TEST_HOST_RELAY=0` gives a worker without relay; a `guard_relay` does its part."""
    worker(env=QUIET)
    with transaction.atomic():
        mark.delay("seen", "here")
    relay()
    wait_for(lambda: Mark.objects.filter(name="seen").exists(), what="the mark")


@pytest.mark.parametrize("whole", [True, False])
def test_a_killed_worker_leaves_no_process(worker, whole):
    """All that a worker started can be killed with it, and goes by itself when it alone is killed."""
    process = worker()
    assert len(process.members()) > 1
    process.kill(whole=whole)
    wait_for(lambda: not process.members(), what="the worker's children to end")
