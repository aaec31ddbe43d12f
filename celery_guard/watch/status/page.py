"""The job as a small page for people, and as a part of the site's own pages."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from celery_guard.conf import guard_settings
from celery_guard.jobs.states import State
from celery_guard.watch.spoken import spoken
from celery_guard.watch.status.document import document
from celery_guard.watch.status.reading import Reading

_WORDS: dict[str, str | Promise] = {
    State.WAITING: _("Waiting"),
    State.RUNNING: _("Running"),
    State.RECONCILING: _("Being checked"),
    State.SUCCEEDED: _("Done"),
    State.FAILED: _("Failed"),
    State.DEAD: _("Failed"),
    State.CANCELLED: _("Cancelled"),
    State.EXPIRED: _("Expired"),
    State.SUPERSEDED: _("Replaced by a newer request"),
}
_STOPPABLE = (State.WAITING, State.RUNNING)


def page(request: HttpRequest, reading: Reading, told: dict[str, Any]) -> HttpResponse:
    """The whole page; it keeps itself current with a script, and without one."""
    context = _context(reading, told)
    return HttpResponse(render_to_string("celery_guard/status/page.html", context, request))


def fragment(request: HttpRequest, reading: Reading) -> str:
    """The part of the page that is about the job, for another page to hold."""
    context = {**_context(reading, document(request, reading)), "embedded": True}
    return render_to_string("celery_guard/status/embedded.html", context, request)


def _context(reading: Reading, told: dict[str, Any]) -> dict[str, Any]:
    shown = reading.standing
    return {
        "told": told,
        "word": _WORDS[shown.state],
        "look": "bad" if told["error"] else shown.state,
        "more": _more(reading, told),
        "created_at": reading.job.created_at,
        "started_at": shown.started_at,
        "finished_at": shown.finished_at,
        "percent": _percent(told["progress"]),
        "stoppable": shown.state in _STOPPABLE
        and not told["cancel_asked"]
        and guard_settings().status.cancel,
    }


def _more(reading: Reading, told: dict[str, Any]) -> str:
    if told["cancel_asked"]:
        return gettext("A stop was asked for. It ends at the next safe place.")
    if told["state"] == State.WAITING:
        return _start(reading.wait)
    if told["state"] == State.RECONCILING:
        return gettext("An answer from outside is missing. It goes on when that is known.")
    if told["error"]:
        return gettext("Reason: %(code)s") % {"code": told["error"]["code"].replace("_", " ")}
    return ""


def _start(wait: float | None) -> str:
    if wait is None:
        return gettext("It will start as soon as it can.")
    # Finer than a second would be a promise.
    if wait < 1:
        return gettext("It starts at once.")
    return gettext("It starts in about %(wait)s.") % {"wait": spoken(round(wait))}


def _percent(progress: dict[str, int | None] | None) -> int | None:
    if progress is None or not progress["total"]:
        return None
    return 100 * (progress["done"] or 0) // progress["total"]
