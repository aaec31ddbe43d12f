"""The whole examination, in the order in which one fault explains the next."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from celery import Celery

from celery_guard.conf import guard_settings, sound_settings
from celery_guard.relay.broker_app import ledgers
from celery_guard.watch.doctor.broker import look_at_broker, look_at_redis
from celery_guard.watch.doctor.canary import send_canaries
from celery_guard.watch.doctor.database import answers, is_migrated, look_at_database
from celery_guard.watch.doctor.finding import Finding
from celery_guard.watch.doctor.lanes import (
    look_at_duties,
    look_at_lanes,
    look_at_limits,
    look_at_releases,
    look_at_reserves,
    look_at_switches,
)
from celery_guard.watch.doctor.leases import look_at_leases
from celery_guard.watch.doctor.leftovers import look_at_leftovers
from celery_guard.watch.doctor.settings import look_at_settings


def examine(
    app: Celery, patience: float | None, aliases: Collection[str] | None = None
) -> Iterator[Finding]:
    """Everything that there is to look at, as it is found.

    :param patience: seconds to wait for the canaries; None to send none.
    :param aliases: the databases to look at; None for all that hold a ledger.
    """
    if sound_settings() is None:
        # With these, nobody knows where to look.
        yield from look_at_settings([])
        return
    aliases = ledgers(app) if aliases is None else aliases
    broken = [finding for alias in aliases if (finding := answers(alias))]
    asked = [] if broken else list(aliases)
    yield from broken
    broken = [finding for alias in asked if (finding := is_migrated(alias))]
    yield from broken
    yield from look_at_settings(asked)
    for alias in [] if broken else asked:
        yield from look_at_database(alias)
        yield from look_at_lanes(alias, app)
        yield from look_at_reserves(alias)
        yield from look_at_releases(alias)
        yield from look_at_duties(alias)
        yield from look_at_leases(alias)
        yield from look_at_leftovers(alias)
        yield from look_at_switches(alias)
    if guard_settings().using in asked and not broken:
        yield from look_at_limits()
    yield from look_at_broker(app)
    yield from look_at_redis(app)
    if patience is not None and asked and not broken:
        yield from send_canaries(patience)
