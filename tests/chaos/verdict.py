"""Counts from outside: the business rows in the database, the charges in the provider's books."""

import dataclasses
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tests.chaos.deaths import Death

MARKS = {
    "flaky": ("flaky",),
    "slow": ("slow",),
    "chain": ("first", "second"),
    "chord": ("member0", "member1", "member2", "close"),
}
CHARGED = ("keyed", "asked")
ELSEWHERE = "(no kill near)"


@dataclasses.dataclass(kw_only=True)
class Row:
    """What became of the jobs that died at one point."""

    point: str
    kills: int = 0
    jobs: int = 0
    lost: int = 0
    doubled: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The whole count; ``faults`` says in words what is wrong."""

    jobs: int
    lost: int
    duplicated: int
    recovery_p95_s: float | None
    rows: tuple[Row, ...]
    faults: tuple[str, ...]


def open_jobs() -> int:
    """Jobs that have not ended, or that somebody still waits for."""
    from django.db.models import Q

    from celery_guard.models import Job

    return Job.objects.filter(
        Q(due_at__isnull=False) | Q(awaited=True, answered_at=None, finished_at__isnull=False)
    ).count()


def ended_jobs() -> int:
    """Jobs that have ended."""
    from celery_guard.models import Job

    return Job.objects.filter(finished_at__isnull=False).count()


def judge(deaths: Iterable[Death], books: Mapping[str, int]) -> Verdict:
    """Compare what every order should have with what there is."""

    deaths = list(deaths)
    counted = list(_count(books))
    missing = [one for one in counted if one.times == 0]
    double = [one for one in counted if one.times > 1]
    unended = [*_unended(), *_untold()]
    return Verdict(
        jobs=len(counted),
        lost=len(missing) + len(unended),
        duplicated=len(double) + len(ghosts := _ghosts()),
        recovery_p95_s=_recovery(deaths),
        rows=_rows(deaths, {one.order for one in missing}, {one.order for one in double}),
        faults=(*map(str, (*missing, *double)), *unended, *ghosts),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How often one thing is there that an order should have once."""

    order: int
    kind: str
    what: str
    times: int

    def __str__(self) -> str:
        return f"order {self.order} ({self.kind}) has {self.times} × {self.what}"


def _count(books: Mapping[str, int]) -> Iterator[Counted]:
    found = _found(books)
    for order, kind in _orders():
        for what in _wanted(kind):
            yield Counted(order=order, kind=kind, what=what, times=found[what, order])


def _orders() -> Iterable[tuple[int, str]]:
    from tests.project.shop.models import Order

    return Order.objects.order_by("pk").values_list("pk", "customer").iterator()


def _wanted(kind: str) -> tuple[str, ...]:
    if kind == "invoice":
        return ("invoice",)
    return (f"payment {kind}", f"charge {kind}") if kind in CHARGED else MARKS[kind]


def _found(books: Mapping[str, int]) -> Counter[tuple[str, int]]:
    from tests.project.shop.models import Invoice, Mark, Order, Payment

    found: Counter[tuple[str, int]] = Counter()
    kinds = dict(Order.objects.filter(customer__in=CHARGED).values_list("pk", "customer"))
    for order in Invoice.objects.values_list("order_id", flat=True):
        found["invoice", order] += 1
    for order in Payment.objects.values_list("order_id", flat=True):
        found[f"payment {kinds.get(order)}", order] += 1
    for order, times in books.items():
        found[f"charge {kinds.get(int(order))}", int(order)] += times
    for name in Mark.objects.values_list("name", flat=True):
        what, _, order = name.rpartition("-")
        found[what, int(order)] += 1
    return found


def _ghosts() -> list[str]:
    from celery_guard.models import Job
    from tests.project.shop.models import Mark

    seen = [*Mark.objects.filter(name__startswith="ghost").values_list("name", flat=True)]
    seen += Job.objects.filter(key__startswith="ghost").values_list("key", flat=True)
    wrong = Mark.objects.filter(name__startswith="close-").exclude(value="[0, 1, 2]")
    seen += [f"{name} of {value}" for name, value in wrong.values_list("name", "value")]
    return [f"the database has {name}" for name in seen]


def _unended() -> list[str]:
    from celery_guard.models import Job

    jobs = Job.objects.exclude(state="succeeded").order_by("pk")
    fields = ("pk", "task", "key", "state", "reason", "error")
    return ["job {} {} {} is {} ({}) {}".format(*row) for row in jobs.values_list(*fields)[:200]]


def _untold() -> list[str]:
    from celery_guard.models import Job

    jobs = Job.objects.filter(awaited=True, answered_at=None, finished_at__isnull=False)
    fields = ("pk", "task", "key", "state", "answers")
    return [
        "job {} {} {} is {}, untold after {} tries".format(*row)
        for row in jobs.values_list(*fields)[:200]
    ]


def _rows(deaths: list[Death], lost: set[int], doubled: set[int]) -> tuple[Row, ...]:
    orders = _orders_of({job for death in deaths for job in death.jobs})
    rows: dict[str, Row] = {}
    touched: dict[str, set[int]] = defaultdict(set)
    for death in deaths:
        row = rows.setdefault(death.point, Row(point=death.point))
        row.kills += 1
        row.jobs += len(orders.keys() & set(death.jobs))
        touched[death.point] |= {orders[job] for job in death.jobs if job in orders}
    for point, row in rows.items():
        row.lost, row.doubled = len(touched[point] & lost), len(touched[point] & doubled)
    near = set().union(*touched.values()) if touched else set()
    if (lost | doubled) - near:
        alone = Row(point=ELSEWHERE, lost=len(lost - near), doubled=len(doubled - near))
        rows[ELSEWHERE] = alone
    return tuple(rows[point] for point in sorted(rows))


def _orders_of(jobs: set[int]) -> dict[int, int]:
    from celery_guard.models import Job

    keys = Job.objects.filter(pk__in=jobs, key__isnull=False).values_list("pk", "key")
    return {pk: int(match[1]) for pk, key in keys if (match := re.search(r":(\d+)", key))}


def _recovery(deaths: list[Death]) -> float | None:
    """Seconds from a kill until each job in the dead process' hands was in somebody's hands again.

    That is: given back, claimed anew, or ended. The 95th percentile of all.
    """
    again = _taken_up({job for death in deaths for job in death.jobs})
    waits = sorted(
        min(after) - death.at
        for death in deaths
        for job in death.jobs
        if (after := [at for at in again[job] if at >= death.at])
    )
    return round(waits[math.ceil(0.95 * len(waits)) - 1], 2) if waits else None


def _taken_up(jobs: set[int]) -> Mapping[int, list[float]]:
    from celery_guard.models import Attempt, Job

    times: dict[int, list[float]] = defaultdict(list)
    rows = Job.objects.filter(pk__in=jobs).values_list("pk", "started_at", "finished_at")
    seen = [(pk, at) for pk, *both in rows for at in both]
    seen += Attempt.objects.filter(job_id__in=jobs).values_list("job_id", "ended_at")
    for job, at in seen:
        if at is not None:
            times[job].append(at.timestamp())
    return times
