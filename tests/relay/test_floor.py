"""The relay without a loop, which beat asks for."""

import uuid
from collections import Counter
from typing import Any

import pytest

from celery_guard.models import Job
from celery_guard.relay import fair
from celery_guard.relay.floor import relay_once
from celery_guard.relay.presence import Worker, report
from tests.factories import make_job
from tests.relay.ledger import queue_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_small_batches_pass_over_no_tenant(
    settings: Any, monkeypatch: pytest.MonkeyPatch, broker: str
) -> None:
    """A batch goes on behind the tenants of the last one: more of them than one look considers share."""
    settings.CELERY_GUARD = {
        **settings.CELERY_GUARD,
        "relay": {**settings.CELERY_GUARD["relay"], "batch": 2},
    }
    monkeypatch.setattr(fair, "MOST", 2)
    report("default", uuid.uuid4(), Worker(name="w", queues=(queue_of("high"),), slots=4))
    for tenant in "abc":
        for _ in range(9):
            make_job("high", queue=queue_of("high"), tenant=tenant)
    assert relay_once("default", lanes=["high"]) == 6
    sent = Job.objects.filter(sent_at__isnull=False)
    assert set(Counter(sent.values_list("tenant", flat=True))) == set("abc")
