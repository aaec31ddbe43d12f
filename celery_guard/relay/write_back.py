"""What a relay writes down after the broker was spoken to: only what did *not* go well.

A message that arrived needs no writing: its job already says that it was sent.
"""

from __future__ import annotations

import logging

from celery_guard.events import emit
from celery_guard.jobs.owed import untry
from celery_guard.jobs.sending import park, put_off, unsend
from celery_guard.relay import plain
from celery_guard.relay.breaker import jittered
from celery_guard.relay.publish.deliver import Delivery

FIRST_PUT_OFF = 1.0
LONGEST_PUT_OFF = 300.0
"""Seconds between two tries of one message that the broker refuses."""


def write_back(using: str, lane: str, delivery: Delivery) -> None:
    """Record a delivery on its jobs. Doing it twice changes nothing more."""
    if delivery.sent:
        emit("relay.published", logging.DEBUG, lane=lane, count=len(delivery.sent))
        plain.forget(using, delivery.sent)
    if delivery.unsent:
        _unsend(using, lane, delivery)
    for sending, reason in delivery.refused:
        seconds = jittered(sending.sends - 1, FIRST_PUT_OFF, LONGEST_PUT_OFF)
        put_off(using, sending, seconds)
        emit("relay.refused", logging.WARNING, lane=lane, job=sending.id, error=reason)
    for sending, reason in delivery.poison:
        # An ended job stays as it is; its further tries are counted.
        if sending.sent_at is not None:
            park(using, sending, reason)
        emit("relay.parked", logging.ERROR, lane=lane, job=sending.id, error=reason)


def _unsend(using: str, lane: str, delivery: Delivery) -> None:
    back = unsend(using, delivery.unsent)
    untry(using, delivery.unsent)
    missed = sum(1 for sending in delivery.unsent if sending.sent_at) - back
    emit("relay.unsent", lane=lane, count=back)
    if missed:
        # Another leader sent it meanwhile, or the message had arrived and was claimed.
        emit("relay.overtaken", logging.WARNING, lane=lane, count=missed)
