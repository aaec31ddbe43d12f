"""``GET /jobs/<public id>/`` and its cancel."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.utils.cache import get_conditional_response, patch_vary_headers
from django.utils.translation import get_language
from django.views.decorators.http import require_http_methods, require_POST

from celery_guard.conf import guard_settings
from celery_guard.events import emit
from celery_guard.jobs import cancelling
from celery_guard.watch.status.document import document, etag_of, url_of
from celery_guard.watch.status.hooks import may_see
from celery_guard.watch.status.page import page
from celery_guard.watch.status.reading import Reading, read

JSON, HTML = "application/json", "text/html"
_CODES = {"cancelled": 200, "asked": 202, "over": 409, "covered": 409}


@require_http_methods(["GET", "HEAD", "DELETE"])
def status(request: HttpRequest, public_id: uuid.UUID) -> HttpResponse:
    """The job as JSON, or as a page to whoever prefers HTML; DELETE cancels it.

    Shown only to whom ``status.owner`` lets see it; all others get the 404 of a job that does not
    exist. Costs one query, and one more while the job waits.
    """
    if request.method == "DELETE":
        return _cancel(request, public_id)
    return _conditional(request, _shown(request, _mine(request, public_id)))


@require_POST
def cancel(request: HttpRequest, public_id: uuid.UUID) -> HttpResponse:
    """The cancel of a form; a browser is sent back to the page."""
    return _cancel(request, public_id)


def _mine(request: HttpRequest, public_id: uuid.UUID) -> Reading:
    reading = read(public_id)
    if reading is None or not may_see(request, reading.job):
        raise Http404("no such job")
    return reading


def _shown(request: HttpRequest, reading: Reading, status: int = 200) -> HttpResponse:
    told = document(request, reading)
    answer: HttpResponse
    if _prefers_html(request):
        answer = page(request, reading, told)
        answer["ETag"] = etag_of(told, HTML, get_language() or "", str(told["predicted_wait"]))
    else:
        answer = JsonResponse(told, status=status)
        answer["ETag"] = etag_of(told, JSON)
    # Kept by the asker alone, and never shown without asking again.
    answer["Cache-Control"] = "private, no-cache"
    patch_vary_headers(answer, ("Accept", "Cookie"))
    if reading.ask_after is not None:
        answer["Retry-After"] = str(reading.ask_after)
    return answer


def _conditional(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
    told = get_conditional_response(request, etag=answer["ETag"], response=answer) or answer
    if "Retry-After" in answer:
        told["Retry-After"] = answer["Retry-After"]
    return told


def _cancel(request: HttpRequest, public_id: uuid.UUID) -> HttpResponse:
    reading = _mine(request, public_id)
    if not guard_settings().status.cancel:
        return JsonResponse({"error": {"code": "not_cancellable"}}, status=403)
    outcome = _ask(request, reading)
    if _prefers_html(request):
        return HttpResponseRedirect(url_of(reading.job), status=303)
    again = read(public_id, using=reading.using) or reading
    return _shown(request, again, status=_CODES[outcome])


def _ask(request: HttpRequest, reading: Reading) -> str:
    shown = reading.standing
    # What another request asked for is cancelled only by whoever may see that one.
    if shown is not reading.job and not may_see(request, shown):
        return "covered"
    outcome = cancelling.ask(reading.using, shown.public_id)
    emit("watch.cancel_asked", job=shown.pk, outcome=outcome)
    return outcome


def _prefers_html(request: HttpRequest) -> bool:
    # The first of equals is JSON: a program that accepts anything gets what it can read.
    return request.get_preferred_type([JSON, HTML]) == HTML


# With ATOMIC_REQUESTS a cancel would hold its row for as long as the answer takes.
def _outside_transactions(view: Any) -> Any:
    for alias in connections:
        view = transaction.non_atomic_requests(alias)(view)
    return view


status = _outside_transactions(status)
cancel = _outside_transactions(cancel)
