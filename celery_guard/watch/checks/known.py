"""Every check by its id: what the documentation's table is made from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from django.core import checks

TAG = "celery_guard"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: ``E…`` where work could be lost or doubled, ``W…`` where something is unwise.

    ``title`` says what is wrong, ``hint`` the line to write; both may hold ``{fields}``.
    """

    id: str
    title: str
    hint: str

    @property
    def full_id(self) -> str:
        """The id as Django shows and silences it."""
        return f"celery_guard.{self.id}"

    def message(self, obj: object = None, **fields: object) -> checks.CheckMessage:
        """The check's message with its fields filled in."""
        kind = checks.Error if self.id.startswith("E") else checks.Warning
        text, hint = self.title.format(**fields), self.hint.format(**fields)
        return kind(text, hint=hint, obj=obj, id=self.full_id)


_ALL = (
    Check(
        id="E001",
        title="CELERY_GUARD is wrong:\n{faults}",
        hint="Correct the setting CELERY_GUARD; every key is listed in the settings reference.",
    ),
    Check(
        id="E002",
        title="The database {alias!r} holds a ledger and runs at {level}, not READ COMMITTED: "
        "claims and heartbeats would fail or read the past.",
        hint='Write {line} into DATABASES["{alias}"]["OPTIONS"].',
    ),
    Check(
        id="E003",
        title="There is no Celery app: tasks would be published by an unconfigured one, past the "
        "guard.",
        hint="Write `from .celery import app as celery_app` into the __init__.py of your project "
        "package, and make the app there as Celery's Django guide says.",
    ),
    Check(
        id="E004",
        title="{setting} allows {formats}: whoever can write to the broker or the outbox could run "
        "any code.",
        hint='Write CELERY_{name} = {value} and change what needs them to "json".',
    ),
    Check(
        id="E005",
        title="The database {alias!r} ({version}) can't skip locked rows, which every list of jobs "
        "relies on.",
        hint="Use PostgreSQL 15, MariaDB 10.6, MySQL 8.0.1 or newer.",
    ),
    Check(
        id="E006",
        title="{owner} names the database {alias!r}, which DATABASES does not know.",
        hint='Write using="{close}", or add {alias!r} to DATABASES.',
    ),
    Check(
        id="E007",
        title="The Celery app {app!r} publishes past the guard: its messages are not promised in "
        "the transaction.",
        hint="Write `celery_guard.install(app)` after the app is made.",
    ),
    Check(
        id="E008",
        title="{fault}: no request for a job's status can be answered.",
        hint="Write the import path of a callable that takes the request and the job.",
    ),
    Check(
        id="E009",
        title="{fault}: no tenant has limits or weights of its own.",
        hint="Write the import path of a callable that takes a tenant and returns a dict or None.",
    ),
    Check(
        id="E010",
        title="{task} has the mode compare, but is not declared comparable: its calls are refused.",
        hint="Write comparable=True at the task if a second run that is rolled back does no harm, "
        'or another mode in CELERY_GUARD["rollout"].',
    ),
    Check(
        id="E011",
        title='TASKS["{alias}"] is wrong: {faults}.',
        hint='Write the names of lanes into "QUEUES", or where each queue belongs into '
        '"OPTIONS": {{"lanes": {{"emails": "low"}}}}.',
    ),
    Check(
        id="W001",
        title="task_always_eager is on: guarded tasks run in the caller, before its transaction commits.",
        hint="Write CELERY_TASK_ALWAYS_EAGER = False, or keep it to the settings of your tests.",
    ),
    Check(
        id="W002",
        title="The broker delivers again after {visibility:g} s, but an attempt may take {longest:g} "
        "s: tasks without a guard would run twice, guarded ones be delivered in vain.",
        hint='Write CELERY_BROKER_TRANSPORT_OPTIONS = {{"visibility_timeout": {enough:.0f}}}.',
    ),
    Check(
        id="W003",
        title="{owner}: the soft time limit ({soft:g} s) is not below the hard one ({hard:g} s), so "
        "it never comes.",
        hint="Write {line}.",
    ),
    Check(
        id="W004",
        title='outbox.capture is "all": a message of an unguarded task is sent at least once, so '
        "after a crash it may arrive twice.",
        hint="Guard the tasks for which that matters, or silence this check: "
        'SILENCED_SYSTEM_CHECKS = ["celery_guard.W004"].',
    ),
    Check(
        id="W005",
        title="The ledger is on SQLite ({alias!r}): one writer at a time, no heartbeats; good for a "
        "first look.",
        hint='Use PostgreSQL in DATABASES["{alias}"] for anything that is served.',
    ),
    Check(
        id="W006",
        title="{task} runs in one transaction and may take {limit:g} s: an open transaction holds "
        "back vacuum and slows every claim.",
        hint="Write atomic=False and `with current_job().finish():`, or a soft_time_limit of at "
        "most {most:g} s.",
    ),
    Check(
        id="W007",
        title="PROMETHEUS_MULTIPROC_DIR is set: django-prometheus leaves the guard's metrics out.",
        hint='Write path("jobs/", include("celery_guard.urls")) into your URLconf and scrape '
        "jobs/metrics.",
    ),
    Check(
        id="W008",
        title='relay.wake is "{wake}", which {reason}: every commit waits for the relay\'s poll.',
        hint='Write CELERY_GUARD = {{"relay": {{"wake": "auto"}}}}.',
    ),
    Check(
        id="W009",
        title="Keys are forgotten after {keys:g} s, before what ended under them is ({kept:g} s): a "
        "late repetition would start over.",
        hint='Write CELERY_GUARD = {{"retention": {{"keys": {kept:.0f}}}}} or more.',
    ),
    Check(
        id="W010",
        title="The broker {transport!r} is none that the guard is made for (Redis, Valkey, "
        "RabbitMQ){why}.",
        hint='Write CELERY_BROKER_URL = "redis://…" or "amqp://…".',
    ),
    Check(
        id="W011",
        title="{task} may run for {limit:g} s, but its lease is {lease:g} s and SQLite has no "
        "heartbeats: it would be started again while it runs.",
        hint="Write lease={enough:.0f} at the task, or a soft_time_limit below its lease.",
    ),
    Check(
        id="W014",
        title="Views are marked with @admits ({views}), but no middleware asks for their places: "
        "they enqueue whatever the load.",
        hint='Write MIDDLEWARE += ["celery_guard.middleware.AdmissionMiddleware"].',
    ),
    Check(
        id="W015",
        title="rollout.modes names {task!r}, which is no guarded task of this site: the mode is "
        "nobody's.",
        hint="Write {close!r}, or take the line out.",
    ),
    Check(
        id="W016",
        title="{task} says fallback=True, but its lane {lane!r} is none of those that may fall "
        "back ({lanes}): it never does.",
        hint='Write CELERY_GUARD = {{"rollout": {{"fallback": {{"lanes": [{lane!r}]}}}}}} or more, '
        "or take fallback=True out.",
    ),
    Check(
        id="W017",
        title="The site's tasks can't be imported ({error}): what they declare was not checked.",
        hint="Correct the module; a worker fails at it too.",
    ),
)

CHECKS: Mapping[str, Check] = {check.id: check for check in _ALL}
