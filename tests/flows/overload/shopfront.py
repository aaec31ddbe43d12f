"""The shop: every visit writes a row and asks for one job, which takes its time."""

import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from celery_guard import admits, guarded_task
from tests.project.shop.models import Mark

SERVICE = 1.5
"""Seconds that a job takes."""


def _serve(name: str) -> None:
    time.sleep(SERVICE)
    Mark.objects.create(name=f"served-{name}")


@guarded_task(key="visit:{name}", lane="high")
def serve_high(name: str) -> None:
    """Somebody waits for it."""
    _serve(name)


@guarded_task(key="visit:{name}", lane="medium")
def serve_medium(name: str) -> None:
    """The usual."""
    _serve(name)


@guarded_task(key="visit:{name}", lane="low")
def serve_low(name: str) -> None:
    """Whenever there is time."""
    _serve(name)


def _visit(task: Any) -> Any:
    def view(request: HttpRequest, name: str) -> HttpResponse:
        Mark.objects.create(name=f"came-{name}")
        task.delay(name)
        return HttpResponse(status=202)

    return csrf_exempt(admits(task, args=_name_of)(view))


def _name_of(request: HttpRequest) -> tuple[str]:
    assert request.resolver_match is not None
    return (str(request.resolver_match.kwargs["name"]),)


urlpatterns = [
    path("high/<str:name>", _visit(serve_high)),
    path("medium/<str:name>", _visit(serve_medium)),
    path("low/<str:name>", _visit(serve_low)),
]
