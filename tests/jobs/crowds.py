"""Many coalesce keys at once, written by the database itself."""

from django.db import connection

from celery_guard.models import Job
from tests.jobs.requests import ask, ask_every, run, send

_LINKS = ("id", "public_id", "coalesce_key")


def multiply(model: Job, keys: int, prefix: str = "k") -> None:
    """`keys` rows like `model`, each with a coalesce key of its own. PostgreSQL only."""
    columns = [f.column for f in Job._meta.concrete_fields if f.column not in _LINKS]
    names = ", ".join(columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO celery_guard_job (public_id, coalesce_key, {names}) "
            f"SELECT gen_random_uuid(), %s || n, {names} "
            "FROM celery_guard_job, generate_series(1, %s) AS n WHERE id = %s",
            [prefix, keys, model.pk],
        )


def crowd(keys: int, period: float = 600.0) -> None:
    """`keys` keys that ran a moment ago, and are asked for again within their period."""
    done = ask_every(period, key="done")
    assert send() == [done.pk]
    run(done)
    multiply(Job.objects.get(pk=done.pk), keys)
    again = ask_every(period, key="again", due_in=-60)
    multiply(Job.objects.get(pk=again.pk), keys)
    Job.objects.filter(pk__in=[done.pk, again.pk]).delete()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE celery_guard_job")


def plain() -> Job:
    """A job without a coalesce key, behind them."""
    return ask(None)
