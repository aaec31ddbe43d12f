"""The reconciler: brings jobs whose effects have no answer back to the question.

It asks no provider itself. It lets the job run again when a look is due, and the body comes to
the same effect, finds what is known of it, and asks there: no code of the site runs outside a
worker, and a look-up needs no second registration.
"""

from __future__ import annotations

import logging

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.faults import fault_point
from celery_guard.jobs.storable import storable
from celery_guard.relay.duties import duty
from celery_guard.relay.lead import find_lanes
from celery_guard.settle import moves

AUTHOR_LENGTH = 255
MOST_AT_ONCE = 100
"""Jobs let go in one tick: what one outage left open must not become a stampede."""


@duty("reconcile", every=lambda: guard_settings().sweep.every)
def reconcile(using: str) -> None:
    """Let the reconciling jobs run that are due for a look, or settled."""
    if moved := moves.look_again(using, find_lanes(using), MOST_AT_ONCE):
        fault_point("settle.freed")
        emit("settle.looking_again", using=using, jobs=moved)


def decide(using: str, effect_id: int, *, applied: bool, by: str, reason: str) -> bool:
    """A person's word on an effect without an answer; its job goes on by itself.

    :param applied: whether it happened at the provider; if not, it is sent (again), unless its job
        has succeeded long since: then it ends ``rejected``.
    :param reason: why that is known; kept with the effect.
    :raises ValueError: without a reason or a name.
    """
    by, reason = _said("a decision", by, reason)
    if applied:
        settled = moves.confirm(using, effect_id, None, by=by, note=reason)
    else:
        # Where nobody would send it, where the old key is used up, and everywhere else.
        ways = (moves.not_held, moves.send_anew, moves.not_applied)
        settled = any(way(using, effect_id, by=by, note=reason) for way in ways)
    emit("settle.decided", effect=effect_id, applied=applied, by=by, done=settled)
    return settled


def reopen(using: str, provider_key: str, *, by: str, reason: str) -> bool:
    """A provider's late no to what it had confirmed: a bounce, a chargeback.

    The effect becomes a question for a person. That happens once in its life, however often the
    provider says so: what a person has decided since then stays. A job that has succeeded stays
    so; one that has not ended waits for the decision when it comes to this effect.

    :param provider_key: the key that the provider was given.
    :param by: who says so, such as the webhook's name.
    :returns: whether it was reopened now.
    :raises ValueError: without a reason or a name.
    """
    by, reason = _said("to reopen an effect", by, reason)
    # It comes from outside: what no database can hold is nobody's key.
    known = storable(provider_key) == provider_key
    reopened = moves.reopen(using, provider_key, by=by, note=reason) if known else []
    for effect in reopened:
        emit("settle.reopened", logging.WARNING, effect=effect, by=by)
    return bool(reopened)


def _said(what: str, by: str, reason: str) -> tuple[str, str]:
    """Who says so and why, storable."""
    if not reason.strip() or not by.strip():
        raise ValueError(f"{what} needs a name and a reason")
    return storable(by)[:AUTHOR_LENGTH], storable(reason)
