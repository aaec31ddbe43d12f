"""A job shares the fate of the transaction that asked for it, to the last savepoint."""

from typing import Any

import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError

from celery_guard.errors import WrongDatabase
from celery_guard.jobs.models import Job
from tests.enqueue.rows import counts, headers_of, jobs, keys
from tests.enqueue.sessions import apart, undone
from tests.enqueue.tasks import app, elsewhere, keyed, plain, unkeyed
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.project.shop.models import Order

pytestmark = [
    pytest.mark.mariadb,
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
]


def test_a_savepoint_takes_its_jobs_with_it_and_leaves_the_others_in_order() -> None:
    """OB-01: what was asked for before and after an undone savepoint stays, in that order."""
    with transaction.atomic():
        keyed.delay("first")
        with undone():
            keyed.delay("undone")
        keyed.delay("second")
    assert keys() == ["keyed:first", "keyed:second"]
    assert counts() == (2, 2)


def test_a_dry_run_leaves_nothing() -> None:
    """OB-01: a transaction that is set to roll back leaves no job, however it ends."""
    with transaction.atomic():
        keyed.delay("a")
        with transaction.atomic():
            keyed.delay("b")
        transaction.set_rollback(True)
    assert counts() == (0, 0)


def test_an_error_in_a_block_without_savepoint_takes_everything() -> None:
    """A swallowed error of ``atomic(savepoint=False)`` undoes the whole; asking again raises."""
    with transaction.atomic():
        keyed.delay("a")
        with undone(savepoint=False):
            keyed.delay("b")
        with pytest.raises(TransactionManagementError):
            keyed.delay("c")
    assert counts() == (0, 0)


def test_savepoints_in_savepoints() -> None:
    """Only the undone branch goes, whatever was released inside it."""
    with transaction.atomic(), transaction.atomic():
        keyed.delay("kept")
        with undone(), transaction.atomic():
            keyed.delay("released, then undone")
        with transaction.atomic():
            keyed.delay("kept too")
    assert keys() == ["keyed:kept", "keyed:kept too"]


def test_nobody_sees_a_job_before_its_commit() -> None:
    """OB-03: another session finds the job and the business row together, after the commit."""

    def seen() -> tuple[int, int]:
        return Job.objects.count(), Order.objects.count()

    with transaction.atomic():
        order = Order.objects.create()
        keyed.delay(order.pk)
        assert apart(seen).result() == (0, 0)
    assert apart(seen).result() == (1, 1)


def test_a_countdown_begins_at_the_call_not_at_the_transaction() -> None:
    """OB-04, EV-23: the due time is absolute, by the database's clock at the statement."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SELECT now(), pg_sleep(0.2)")
            else:
                cursor.execute("SELECT UTC_TIMESTAMP(6), sleep(0.2)")
            began = cursor.fetchone()[0]
        keyed.apply_async(("a",), countdown=100)
    (job,) = jobs()
    assert job.due_at is not None
    assert (job.created_at.replace(tzinfo=None) - began.replace(tzinfo=None)).total_seconds() >= 0.2
    # The row's own times are read at one instant or, without CTEs, in one statement.
    assert 99.9 < (job.due_at - job.created_at).total_seconds() < 100.1
    assert job.first_due_at == job.due_at


@pytest.mark.parametrize("using", ["default", "other"])
def test_the_ledger_follows_its_own_database(using: str) -> None:
    """OB-07: a task's job lives and dies with the transaction on its declared database."""
    task = {"default": keyed, "other": elsewhere}[using]
    with transaction.atomic(using=using):
        task.delay("a")
        transaction.set_rollback(True, using=using)
    assert counts(using) == (0, 0)
    with transaction.atomic(using=using):
        assert task.delay("a").using == using
    assert counts(using) == (1, 1)


@pytest.mark.parametrize(("task", "open_one"), [(keyed, "other"), (elsewhere, "default")])
def test_a_transaction_on_another_database_only_is_refused(task: Any, open_one: str) -> None:
    """OB-07: a job that could stay when the caller's work is undone is refused, by name."""
    with pytest.raises(WrongDatabase, match=open_one), transaction.atomic(using=open_one):
        task.delay("a")
    assert counts("default") == counts("other") == (0, 0)


@pytest.mark.parametrize("undone", ["default", "other"])
@pytest.mark.parametrize(("task", "using"), [(keyed, "default"), (elsewhere, "other")])
def test_with_both_open_each_job_goes_with_its_own(task: Any, using: str, undone: str) -> None:
    """OB-07: with two transactions open and one undone, the job goes where its ledger goes."""
    with transaction.atomic(using="default"), transaction.atomic(using="other"):
        task.delay("a")
        transaction.set_rollback(True, using=undone)
    assert counts(using) == ((0, 0) if undone == using else (1, 1))


def test_a_transaction_made_by_hand_counts() -> None:
    """With autocommit off, a rollback takes the job and a commit keeps it."""
    transaction.set_autocommit(False)
    try:
        keyed.delay("undone")
        transaction.rollback()
        keyed.delay("kept")
        transaction.commit()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert keys() == ["keyed:kept"]


def test_a_transaction_made_by_hand_on_another_database_is_refused() -> None:
    """OB-07: autocommit off is a transaction like any other."""
    transaction.set_autocommit(False, using="other")
    try:
        with pytest.raises(WrongDatabase, match="other"):
            keyed.delay("a")
    finally:
        transaction.rollback(using="other")
        transaction.set_autocommit(True, using="other")
    assert counts() == (0, 0)


def test_without_a_transaction_the_job_is_there_at_once() -> None:
    """Autocommit: one call is one transaction."""
    keyed.delay("a")
    assert apart(keys).result() == ["keyed:a"]


def test_the_id_in_hand_is_the_id_the_worker_sees() -> None:
    """OB-08: the handle's id can be stored at once, and after a rollback it names nothing."""
    with transaction.atomic():
        handle = keyed.delay("a")
        assert (handle.job is not None, handle.created) == (True, True)
    (job,) = jobs()
    assert headers_of(job)["id"] == handle.id == str(job.public_id) == str(handle.public_id)
    with transaction.atomic():
        undone = keyed.delay("b")
        transaction.set_rollback(True)
    assert undone.job is None


def test_a_process_that_dies_right_after_the_commit_leaves_the_job(processes: Processes) -> None:
    """OB-05: nothing that happens after COMMIT is needed for the job to be there."""
    script = (
        "import os, django; django.setup()\n"
        "from django.db import transaction\n"
        "from tests.enqueue.tasks import keyed\n"
        "with transaction.atomic():\n"
        "    transaction.on_commit(lambda: os._exit(9))\n"
        "    keyed.delay('a')\n"
    )
    died = processes.python("-c", script, env={"DJANGO_SETTINGS_MODULE": "tests.project.settings"})
    wait_for(lambda: not died.alive, what="the process to die")
    assert keys() == ["keyed:a"], died.log


@pytest.mark.parametrize("undo", [True, False])
def test_everything_published_in_a_transaction_can_be_kept(undo: bool, settings: Any) -> None:
    """``capture = "all"``: an unguarded task's message shares the transaction's fate too."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "outbox": {"capture": "all"}}
    with transaction.atomic():
        plain.apply_async((1,), countdown=60, task_id="mine")
        app().send_task("somewhere.else", (2,))
        transaction.set_rollback(undo)
    expected = [] if undo else [("somewhere.else", True, None), (plain.name, True, None)]
    assert [(job.task, job.plain, job.key) for job in jobs()] == expected


def test_plain_messages_are_kept_as_often_as_they_are_sent(settings: Any) -> None:
    """Celery sends twice what is asked for twice, whatever the id; so does the outbox."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "outbox": {"capture": "all"}}
    with transaction.atomic():
        for _ in range(2):
            plain.apply_async((1,), task_id="mine")
    assert [headers_of(job)["id"] for job in jobs()] == ["mine", "mine"]


def test_plain_tasks_go_straight_out_unless_asked_otherwise(redis_client: Any) -> None:
    """``capture = "guarded"``, the default: an unguarded task is none of the outbox' business."""
    with transaction.atomic():
        plain.delay(1)
    assert counts() == (0, 0)
    assert redis_client.llen(app().conf.task_default_queue) == 1


def test_outside_a_transaction_plain_tasks_go_straight_out(
    settings: Any, redis_client: Any
) -> None:
    """``capture = "all"`` is about what is published inside a transaction."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "outbox": {"capture": "all"}}
    plain.delay(1)
    assert counts() == (0, 0)
    assert redis_client.llen(app().conf.task_default_queue) == 1


def test_delay_on_commit_is_delay() -> None:
    """Call sites of Celery's Django helpers keep working, and get the handle."""
    with transaction.atomic():
        assert unkeyed.delay_on_commit(1).job is not None
        assert unkeyed.apply_async_on_commit((2,), countdown=5).job is not None
    assert counts() == (2, 2)
