"""The door for HTTP: places taken before the view's transaction, refusals told in HTTP's words."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from celery_guard.enqueue.admission.admit import give_back
from celery_guard.enqueue.admission.marks import marks_of
from celery_guard.enqueue.admission.places import Place, holding
from celery_guard.errors import AdmissionRefused

Answer = HttpResponseBase | Awaitable[HttpResponseBase]

_TITLES = {429: "Too many requests", 503: "Service unavailable"}


class AdmissionMiddleware:
    """Asks for the places that ``@admits`` names and answers a refusal with 429 or 503.

    Put it after what tells who is asking (session, authentication) and it sees their user. It
    needs no transaction and opens none; the view's own (``ATOMIC_REQUESTS``) begins after it.
    Places that no job has taken by the end of the request are given back. It also answers an
    ``AdmissionRefused`` that a view raises.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._later = iscoroutinefunction(get_response)
        if self._later:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Answer:
        """Answer ``request``."""
        if self._later:
            return self._answer_later(request)
        with holding() as places:
            try:
                response: HttpResponseBase = self.get_response(request)
            finally:
                _clear(places)
        return response

    async def _answer_later(self, request: HttpRequest) -> HttpResponseBase:
        with holding() as places:
            try:
                response: HttpResponseBase = await self.get_response(request)
            finally:
                if any(not place.spent for place in places):
                    await sync_to_async(_clear)(places)
        return response

    def process_view(
        self,
        request: HttpRequest,
        view: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> HttpResponseBase | None:
        """Django's hook before the view and its transaction."""
        try:
            for mark in marks_of(view, request.method or "GET"):
                mark.ask(request)
        except AdmissionRefused as refused:
            return problem(refused)
        return None

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponseBase | None:
        """Django's hook for what a view raised."""
        return problem(exception) if isinstance(exception, AdmissionRefused) else None


def _clear(places: Sequence[Place]) -> None:
    if places:
        give_back(places)


def problem(refused: AdmissionRefused) -> JsonResponse:
    """``refused`` as an HTTP answer: status, ``Retry-After`` in whole seconds, problem details.

    The body (RFC 9457) names the reason; which setting was reached is not the client's business.
    """
    seconds = max(1, math.ceil(refused.retry_after))
    body = {
        "type": "about:blank",
        "title": _TITLES[refused.status],
        "status": refused.status,
        "detail": f"There is no room for this request now; ask again in {seconds} s.",
        "reason": refused.reason,
        "retry_after": seconds,
    }
    response = JsonResponse(body, status=refused.status, content_type="application/problem+json")
    response["Retry-After"] = str(seconds)
    response["Cache-Control"] = "no-store"
    return response
