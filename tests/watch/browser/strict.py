"""A policy under which nothing inline runs and nothing comes from elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

POLICY = "default-src 'none'; " + "; ".join(
    f"{what}-src 'self'" for what in ("script", "style", "img", "connect", "font")
)


def policy(answer: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware that says it with every page."""

    def with_policy(request: HttpRequest) -> HttpResponse:
        response = answer(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return with_policy
