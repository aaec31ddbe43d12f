"""An app is guarded by having a guarded task; its own settings and classes stay in force."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.app.amqp import AMQP
from kombu import Queue

from celery_guard import UNKEYED, GuardedTask, install
from celery_guard.conf import guard_settings
from celery_guard.enqueue.install import GuardedAMQP, installed
from celery_guard.outbox.capture import collecting
from tests.enqueue.rows import celery_settings, jobs
from tests.enqueue.tasks import app, high, keyed

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db]


@pytest.fixture
def another() -> Iterator[Celery]:
    """A second app in the process, with a broker and a default queue of its own."""
    second = Celery("second", broker="memory://", set_as_current=False)
    second.conf.task_default_queue = "second"
    yield second
    second.close()


def test_an_app_is_guarded_by_having_a_guarded_task(another: Celery) -> None:
    """Any way to make a task will do; plain tasks alone change nothing."""

    @another.task(name="plain.one", shared=False)
    def plain() -> None:
        """Never runs."""

    assert not isinstance(another.amqp, GuardedAMQP)

    @another.task(base=GuardedTask, key=UNKEYED, name="guarded.one", shared=False)
    def body() -> None:
        """Never runs."""

    body.delay()
    assert installed(another)
    assert [job.task for job in jobs()] == ["guarded.one"]


def test_a_class_can_be_a_guarded_task(another: Celery) -> None:
    """``run`` is the body, and class attributes are the options."""

    class Charge(GuardedTask):
        """A task in the old style."""

        name = "guarded.charge"
        key = "charge:{order_id}"
        lane = "high"

        def run(self, order_id: int) -> None:
            """Never runs."""

    another.register_task(Charge())
    another.tasks["guarded.charge"].delay(7)
    (job,) = jobs()
    assert (job.key, job.lane) == ("charge:7", "high")


def test_a_second_app_does_not_move_the_sites_lanes(another: Celery) -> None:
    """``medium`` is the default queue of the site's app, whoever else has queues."""
    before = guard_settings().lane("medium").queue
    install(another)
    assert "second" in another.amqp.queues
    assert guard_settings().lane("medium").queue == before == app().conf.task_default_queue


def test_a_site_may_have_an_amqp_class_of_its_own() -> None:
    """The guard comes before it, and nothing of it is lost."""

    class Own(AMQP):
        """Says who it is."""

        mine = True

    early = Celery("early", amqp=Own, set_as_current=False, broker="memory://")
    install(early)
    late = Celery("late", amqp=Own, set_as_current=False, broker="memory://")
    assert late.amqp.queues
    install(late)
    install(late)
    for one in (early, late):
        assert isinstance(one.amqp, GuardedAMQP)
        assert isinstance(one.amqp, Own)
        assert {"high", "low"} & {queue.removeprefix(_prefix()) for queue in one.amqp.queues}


def _prefix() -> str:
    return guard_settings().lane("high").queue.removesuffix("high")


def test_workers_serve_the_lanes_queues() -> None:
    """A worker without ``-Q`` consumes all of them, and the toolkit's own queue."""
    settings = guard_settings()
    lanes = {lane.queue for lane in settings.lanes.values()}
    assert lanes | {settings.control_queue} <= set(app().amqp.queues.consume_from)


@pytest.mark.parametrize(
    ("options", "queue"),
    [({}, None), ({"queue": "mine"}, "mine"), ({"queue": Queue("object")}, "object")],
)
def test_a_call_may_name_its_queue(options: Any, queue: str | None) -> None:
    """The lane is the default, not a rule."""
    with collecting() as kept:
        high.apply_async(("a",), **options)
    assert kept[0].envelope.routing_key == (queue or guard_settings().lane("high").queue)


def test_the_sites_routes_win() -> None:
    """``task_routes`` come before the lanes."""
    amqp = app().amqp
    try:
        with celery_settings(app(), task_routes={high.name: {"queue": "routed"}}):
            _forget_routes(amqp)
            with collecting() as kept:
                high.apply_async(("a",), countdown=1)
                keyed.apply_async(("a",), countdown=1)
    finally:
        _forget_routes(amqp)
    routed, lane = (one.envelope.routing_key for one in kept)
    assert (routed, lane) == ("routed", guard_settings().lane("medium").queue)


def _forget_routes(amqp: Any) -> None:
    amqp._rtable = None
    amqp.__dict__.pop("router", None)


def test_a_queue_outside_all_lanes_is_a_lane_of_its_own() -> None:
    """The job's lane is the queue's name."""
    keyed.apply_async(("a",), queue="elsewhere")
    assert [job.lane for job in jobs()] == ["elsewhere"]
