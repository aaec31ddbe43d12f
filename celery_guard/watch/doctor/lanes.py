"""Who moves the jobs: relays that lead, workers that serve, duties that are done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from celery import Celery
from django.db.models import F

from celery_guard import __version__
from celery_guard.conf import Lane, guard_settings
from celery_guard.jobs.clock import DatabaseNow, in_seconds
from celery_guard.relay.broker_app import path_of
from celery_guard.relay.costs import Costs
from celery_guard.relay.duties import registered
from celery_guard.relay.models import Duty, LaneLead
from celery_guard.relay.presence import live_workers, slots_of
from celery_guard.relay.reserve import most_long
from celery_guard.watch.doctor.finding import Finding, fault, ok, warning
from celery_guard.watch.limits import limits_now
from celery_guard.watch.paused import in_force
from celery_guard.watch.spoken import spoken

OVERDUE = 5
"""Periods after which a duty that nobody has done is overdue."""
QUICK = 5.0
"""Seconds that a duty may take, however short its period."""


def start_line(app: Celery, lane: Lane) -> str:
    """The command that starts a pool of its own for ``lane``."""
    queues = [lane.queue]
    if lane.name == "medium":
        # The usual lane's pool also does the upkeep that beat asks for.
        queues.append(guard_settings().control_queue)
    return f"celery -A {_module(app)} worker -n {lane.name}@%h -Q {','.join(queues)}"


def _module(app: Celery) -> str:
    return path_of(app).partition(":")[0].removesuffix(".celery") or "PROJECT"


def look_at_lanes(using: str, app: Celery) -> Iterator[Finding]:
    """Every lane needs a relay that leads it and a worker that serves it."""
    leads = LaneLead.objects.using(using).filter(lead_until__gt=DatabaseNow())
    led = set(leads.values_list("lane", flat=True))
    workers = live_workers(using)
    # Every worker hosts a relay: where none lives, starting one is all there is to do.
    start = "" if workers else f"celery -A {_module(app)} worker"
    for lane in guard_settings().lanes.values():
        slots = slots_of(lane.queue, workers)
        what = f"lane {lane.name}"
        if not slots:
            says = f"no live worker serves the queue {lane.queue!r}: what is sent waits"
            if lane.name not in led:
                says = f"no live worker serves the queue {lane.queue!r}, no relay leads the lane"
            own = start_line(app, lane)
            yield fault(what, says, f"{start}, or for it alone: {own}" if start else own)
        elif lane.name not in led:
            yield fault(what, "no relay leads it: nothing is sent", "python manage.py guard_relay")
        if slots and lane.name in led:
            yield ok(what, f"led by a relay, served by {slots} slots")


def look_at_reserves(using: str) -> Iterator[Finding]:
    """What a lane keeps for small jobs helps only where there are such, and more slots than one."""
    workers, costs = live_workers(using), Costs(using)
    for lane in guard_settings().lanes.values():
        if lane.small is None:
            continue
        costs.refresh()
        what, slots = f"small jobs of {lane.name}", slots_of(lane.queue, workers) or 0
        most = most_long(lane.small, slots)
        if not (tasks := costs.under(lane.small.under)):
            says = (
                f"no task is known to take less than {spoken(lane.small.under)}: all jobs are long"
            )
            yield warning(what, says, "Write cost= (seconds) at those that do.")
        elif slots and most >= slots:
            says = f"long jobs may take all of its slots ({slots})"
            yield warning(what, says, "Start more workers for the lane.")
        elif slots:
            yield ok(what, f"{len(tasks)} tasks are small; long jobs take {most} of {slots} slots")


def look_at_releases(using: str) -> Iterator[Finding]:
    """During a roll-out two releases work side by side; afterwards nobody should be left behind."""
    versions = Counter(worker.version or "an older release" for worker in live_workers(using))
    del versions[__version__]
    if versions:
        told = ", ".join(f"{version} ({count})" for version, count in sorted(versions.items()))
        yield warning(
            "releases",
            f"live workers do not run {__version__}: {told}",
            "Restart them on this release, and until then apply no later migration of celery_guard.",
        )


def look_at_duties(using: str) -> Iterator[Finding]:
    """Sweep, rescue, snapshot and purge are done by whoever comes first; somebody must."""
    done = dict(Duty.objects.using(using).values_list("name", "done_at"))
    late = [
        duty.name
        for duty in registered()
        if done.get(duty.name) is None or _is_overdue(using, duty.name, duty.every())
    ]
    if late:
        yield fault(
            "upkeep",
            f"not done in time: {', '.join(sorted(late))}",
            "Start a worker, `python manage.py guard_relay`, or beat; look in their logs for "
            "relay.duty_failed.",
        )
    else:
        yield ok("upkeep", f"done in time: {', '.join(sorted(duty.name for duty in registered()))}")
    for name, every, took in _slow_duties(using):
        yield warning(
            f"duty {name}",
            f"the last run took {spoken(took)}, longer than its period of {spoken(every)}",
            "Look at what the database is busy with, or do it less often (snapshot.every, sweep.every).",
        )


def _slow_duties(using: str) -> Iterator[tuple[str, float, float]]:
    every = {duty.name: duty.every() for duty in registered()}
    # Not of a run that is under way.
    rows = Duty.objects.using(using).filter(done_at__gte=F("begun_at")).order_by("name")
    for name, begun, done in rows.values_list("name", "begun_at", "done_at"):
        took = (done - begun).total_seconds() if begun and done else 0.0
        if name in every and took > max(QUICK, every[name]):
            yield name, every[name], took


def _is_overdue(using: str, name: str, every: float) -> bool:
    allowed = max(10.0, OVERDUE * every)
    late = Duty.objects.using(using).filter(name=name, done_at__lt=in_seconds(-allowed))
    return late.exists()


def look_at_switches(using: str) -> Iterator[Finding]:
    """What an operator holds, refuses or demotes; easily forgotten."""
    for one in in_force([using]):
        yield warning("steering", one.says, f"python manage.py guard_resume {one.id}")


def look_at_limits() -> Iterator[Finding]:
    """Which limits were changed at run time; the settings count again when it is over."""
    for one in limits_now(set_only=True):
        yield warning("limits", one.says, f"python manage.py guard_limit {one.dependency} --end")
