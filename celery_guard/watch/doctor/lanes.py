"""Who moves the jobs: relays that lead, workers that serve, duties that are done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from celery import Celery
from django.db.models import Exists, F, Max

from celery_guard import __version__
from celery_guard.conf import Lane, guard_settings
from celery_guard.jobs.clock import DatabaseNow, database_time, in_seconds
from celery_guard.jobs.models import Job
from celery_guard.jobs.states import Reason
from celery_guard.relay.broker_app import path_of
from celery_guard.relay.costs import Costs
from celery_guard.relay.duties import registered
from celery_guard.relay.models import Duty, LaneLead
from celery_guard.relay.presence import live_workers, slots_of
from celery_guard.relay.reserve import most_long
from celery_guard.settle.models import Effect
from celery_guard.settle.states import EffectState
from celery_guard.watch.doctor.finding import Finding, fault, ok, warning
from celery_guard.watch.lanes import closing
from celery_guard.watch.limits import limits_now
from celery_guard.watch.paused import in_force
from celery_guard.watch.spoken import spoken

LOOKED_AT = 100_000
"""The newest jobs that are looked through for dead letters; no index leads to them."""
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


def look_at_leftovers(using: str) -> Iterator[Finding]:
    """What waits for a person: effects without an answer, new dead letters; what was not sent."""
    unknown = Effect.objects.using(using).filter(state=EffectState.MANUAL).count()
    if unknown:
        yield warning(
            "effects",
            f"waiting for a person's word: {unknown}; did the provider apply them?",
            "Settle them in the admin.",
        )
    yield from _dead_letters(using)
    expected = Job.objects.using(using).unsent().filter(~Exists(closing()))
    oldest = expected.order_by("due_at").values_list("due_at", flat=True)
    if (stuck := oldest.filter(due_at__lt=in_seconds(-60)).first()) is not None:
        age = (database_time(using) - stuck).total_seconds()
        yield warning(
            "outbox",
            f"a job has been due for {spoken(age)} and was not sent",
            "python manage.py guard_stats says which lane; see the lanes above.",
        )


def look_at_switches(using: str) -> Iterator[Finding]:
    """What an operator holds, refuses or demotes; easily forgotten."""
    for one in in_force([using]):
        yield warning("steering", one.says, f"python manage.py guard_resume {one.id}")


def look_at_limits() -> Iterator[Finding]:
    """Which limits were changed at run time; the settings count again when it is over."""
    for one in limits_now(set_only=True):
        yield warning("limits", one.says, f"python manage.py guard_limit {one.dependency} --end")


def _dead_letters(using: str) -> Iterator[Finding]:
    jobs = Job.objects.using(using)
    newest = jobs.aggregate(newest=Max("pk"))["newest"] or 0
    recent = jobs.dead_letters().filter(
        pk__gt=newest - LOOKED_AT, error__isnull=False, finished_at__gt=in_seconds(-3600)
    )
    reasons = Counter(recent.values_list("reason", flat=True))
    if not reasons:
        return
    told = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    hint = (
        "`python manage.py guard_stats --dead-letters` and the admin say what went wrong; mend "
        "that, then replay them: guard_replay."
    )
    if Reason.UNKNOWN_TASK in reasons:
        hint = "unknown_task: restart the workers, they run older code. " + hint
    yield warning("dead letters", f"of the last hour, by reason: {told}", hint)
