"""Tasks to be proved: sound ones, and ones that a death would break."""

from collections import Counter

from celery import chord
from django.contrib.auth.models import Group

from celery_guard import Applied, NotApplied, coalesce, current_job, guarded_task
from celery_guard.settle.perform import Sending
from tests.project.shop.models import Mark, Payment
from tests.project.shop.tasks import add, mark


class Bank:
    """A provider in memory; with ``deaf`` it can't be asked."""

    def __init__(self) -> None:
        self.applied: Counter[str] = Counter()

    def pay(self, sending: Sending) -> dict[str, str]:
        """One charge, key or not."""
        self.applied[sending.key] += 1
        return {"id": sending.key}

    def find(self, sending: Sending) -> Applied | NotApplied:
        """What became of it."""
        return Applied({"id": sending.key}) if self.applied[sending.key] else NotApplied()


bank = Bank()


@guarded_task(key="sound:{name}")
def sound(name: str) -> str:
    """One row and one further job, in one transaction."""
    Mark.objects.create(name=name)
    mark.delay(f"{name}-next")
    return name


@guarded_task()
@coalesce("rarely:{name}", every=60)
def rarely(name: str) -> None:
    """At most once a minute."""


@guarded_task(key="paid:{name}", atomic=False)
def paid(name: str) -> None:
    """A charge that can be asked about, then its row."""
    answer = current_job().effect("charge", bank.pay, find=bank.find)
    with current_job().finish():
        Payment.objects.create(order_id=0, reference=answer.id)


@guarded_task(key="unasked:{name}", atomic=False)
def unasked(name: str) -> None:
    """A charge that only a person can find out about."""
    current_job().effect("charge", bank.pay)
    with current_job().finish():
        Payment.objects.create(order_id=0, reference=name)


@guarded_task(key="bare:{name}", atomic=False)
def bare(name: str) -> None:
    """Writes outside its finish: a death between the two doubles the row."""
    Mark.objects.create(name=name)
    with current_job().finish():
        Payment.objects.create(order_id=0, reference=name)


@guarded_task(key="chords:{name}")
def starts_a_chord(name: str) -> None:
    """Its next steps are a chord, which counts on a result backend."""
    chord([add.s(n, n) for n in range(3)], noted_total.s(name)).delay()


@guarded_task(key="noted:{name}")
def noted_total(numbers: list[int], name: str) -> None:
    """The chord's body."""
    Mark.objects.create(name=name, value=str(sum(numbers)))


@guarded_task(key="loose:{name}", atomic=False)
def loose(name: str) -> str:
    """Returns without a finish of its own."""
    Mark.objects.create(name=name)
    return name


@guarded_task(key="spoils:{name}", atomic=False)
def spoils(name: str) -> None:
    """Runs into a database error outside any transaction of its own."""
    Mark.objects.create(name=name)
    Group.objects.bulk_create([Group(name=name), Group(name=name)])
