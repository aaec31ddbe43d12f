"""The metrics for Prometheus and the scaling advice for KEDA, closed without their token."""

from __future__ import annotations

import json
import logging
import os
import secrets

from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.watch.health import trouble_in
from celery_guard.watch.prometheus import collector
from celery_guard.watch.scale import Stale, advised, as_json


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Everything this process exports, the lanes' snapshot included.

    Open only to ``Authorization: Bearer <CELERY_GUARD["metrics_token"]>``; without that setting
    there is no page. Under ``PROMETHEUS_MULTIPROC_DIR`` the metrics of all processes are added,
    which the default registry would leave out.
    """
    if (refusal := _refusal(request)) is not None:
        return refusal
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return _answer(encode(_registry()), content_type=content_type)


@require_safe
def scale(request: HttpRequest) -> HttpResponse:
    """The scaling advice as JSON; ``?lane=high`` for one lane only.

    Closed like the metrics. Answers 503 when the snapshot is stale or cannot be read, never a
    number that was not measured: an autoscaler then keeps what it runs.
    """
    if (refusal := _refusal(request)) is not None:
        return refusal
    lanes = collector().read()
    try:
        found = advised(lanes or (), only=request.GET.get("lane", ""))
    except Stale as error:
        return _answer(f"{error}\n", status=503)
    return _answer(json.dumps(as_json(found)), content_type="application/json")


@require_safe
def health(request: HttpRequest) -> HttpResponse:
    """200 while jobs start; 503 when they wait and nothing starts, or when nobody measures.

    Closed like the metrics. A check on the fleet: restarting the web process that answers it helps
    nothing.
    """
    if (refusal := _refusal(request)) is not None:
        return refusal
    trouble = trouble_in(collector().read())
    if trouble is None:
        return _answer("ok\n")
    return _answer(f"{trouble.kind}: {trouble.says}\n", status=503)


def _refusal(request: HttpRequest) -> HttpResponse | None:
    token = guard_settings().metrics_token
    if not token:
        return _answer("metrics_token is not set\n", status=404)
    if _is_allowed(request, token):
        return None
    refusal = _answer("the token is missing or wrong\n", status=401)
    refusal["WWW-Authenticate"] = "Bearer"
    return refusal


def _is_allowed(request: HttpRequest, token: str) -> bool:
    given = request.headers.get("Authorization", "")
    return secrets.compare_digest(given.encode(), f"Bearer {token}".encode())


def _answer(content: str | bytes, status: int = 200, content_type: str = "") -> HttpResponse:
    answer = HttpResponse(
        content, status=status, content_type=content_type or "text/plain; charset=utf-8"
    )
    answer["Cache-Control"] = "no-store"
    return answer


def _registry() -> CollectorRegistry:
    if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        return REGISTRY
    # Made for each scrape: it reads the files of all processes as they are now.
    registry = CollectorRegistry()
    registry.register(collector())
    try:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    except ValueError as error:
        emit("watch.no_multiprocess_metrics", logging.ERROR, error=str(error))
    return registry


# With ATOMIC_REQUESTS a database that is away would refuse the page before it could say so.
for _alias in connections:
    metrics = transaction.non_atomic_requests(_alias)(metrics)
    scale = transaction.non_atomic_requests(_alias)(scale)
    health = transaction.non_atomic_requests(_alias)(health)
