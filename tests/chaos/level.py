"""What may not grow in a run without end: the processes' memory, the tables and their indexes."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.crew import Crew

PAGE = os.sysconf("SC_PAGE_SIZE")
QUARTERS = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look, in bytes: all processes' resident memory, all our tables, all their indexes."""

    memory: int
    tables: int
    indexes: int


FIGURES = tuple(field.name for field in dataclasses.fields(Sample))


def sample(crew: Crew) -> Sample:
    """Look now."""
    tables, indexes = _sizes()
    pids = (pid for member in crew.members for pid in member.family())
    return Sample(memory=sum(map(_resident, pids)), tables=tables, indexes=indexes)


def growth(samples: Sequence[Sample]) -> dict[str, float]:
    """How much larger each figure's most is in the last quarter of the run than in its second.

    The first quarter fills caches and tables up to what is kept. Nothing when there are too few.
    """
    size = len(samples) // QUARTERS
    if size < 2:
        return {}
    second, last = samples[size : 2 * size], samples[-size:]
    return {name: round(_most(last, name) / _most(second, name), 3) for name in FIGURES}


def _most(samples: Sequence[Sample], name: str) -> int:
    return max(getattr(one, name) for one in samples)


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0  # gone meanwhile


def _sizes() -> tuple[int, int]:
    from django.apps import apps
    from django.db import connection

    names = [model._meta.db_table for model in apps.get_app_config("celery_guard").get_models()]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT sum(pg_table_size(oid)), sum(pg_indexes_size(oid)) FROM pg_class "
                "WHERE relname = ANY(%s) AND relnamespace = current_schema()::regnamespace",
                [names],
            )
        else:
            cursor.execute(
                "SELECT sum(data_length), sum(index_length) FROM information_schema.tables "
                "WHERE table_schema = database() AND table_name IN %s",
                [names],
            )
        tables, indexes = cursor.fetchone()
    return int(tables), int(indexes)
