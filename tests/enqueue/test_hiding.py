"""An argument that a task declares sensitive is in its messages' bodies, and in nothing that is shown."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from celery import chain, chord, group
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import RequestFactory, override_settings
from django.views.debug import ExceptionReporter
from django.views.decorators.debug import sensitive_variables

from celery_guard import (
    AdmissionRefused,
    GuardError,
    admit,
    batch,
    coalesce,
    enqueue_many,
    guarded_task,
)
from celery_guard.enqueue.hiding import HIDDEN, hide
from celery_guard.enqueue.rollout import reading
from celery_guard.errors import NotSerializable
from celery_guard.models import Job, OutboxMessage
from tests.enqueue.rollout.stages import set_to
from tests.enqueue.rows import headers_of, jobs
from tests.enqueue.sessions import LONG, apart, limit_lock_waits, wait
from tests.flows.confiding import keep
from tests.project.celery import app

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]

SECRET = "swordfish-4111-1111"
OURS = f"{os.sep}celery_guard{os.sep}"


@guarded_task(key="told:{name}", sensitive=("secrets", "others"))
def any_of_them(name: str, *secrets: Any, **others: Any) -> None:
    """Takes as many as it is given."""


@guarded_task(key=lambda name, secret: secret or None)
def keyed_by_it(name: str, secret: Any) -> None:
    """Makes its key of what is no plain value."""


FORMS: dict[str, Callable[[], Any]] = {
    "delay": lambda: keep.delay("a", SECRET),
    "by name": lambda: keep.delay(name="a", secret=SECRET),
    "apply_async": lambda: keep.apply_async(("a",), {"secret": SECRET}, countdown=5),
    "with an id": lambda: keep.apply_async(("a", SECRET), task_id="one"),
    "submit": lambda: keep.submit("a", SECRET),
    "send_task": lambda: app.send_task(keep.name, ("a", SECRET)),
    "signature": lambda: keep.si("a", SECRET).delay(),
    "chain": lambda: chain(keep.si("a", SECRET), keep.si("b", SECRET)).delay(),
    "group": lambda: group(keep.si(name, SECRET) for name in "abc").delay(),
    "chord": lambda: chord([keep.si("a", SECRET)], keep.si("b", SECRET)).delay(),
    "many": lambda: enqueue_many([keep.s("a", SECRET), keep.s("b", secret=SECRET)]),
}


@pytest.mark.bar
@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_ask_hides_it(form: str) -> None:
    """What Celery shows of a call travels in the headers; the body is what the worker gets."""
    FORMS[form]()
    assert jobs()
    for message in OutboxMessage.objects.all():
        assert SECRET not in message.envelope
        assert HIDDEN in message.envelope or "<canvas>" in message.envelope
        assert SECRET.encode() in bytes(message.body)


def test_a_batch_hides_it() -> None:
    """The record that PostgreSQL makes its rows of has no place for it."""
    with batch():
        keep.delay("a", SECRET)
        keep.delay("b", secret=SECRET)
    assert [headers_of(job)["argsrepr"] for job in jobs()] == [f"('a', '{HIDDEN}')", "('b',)"]
    assert headers_of(jobs()[1])["kwargsrepr"] == f"{{'secret': '{HIDDEN}'}}"


def test_the_other_arguments_are_shown() -> None:
    """Any number of them, by position and by name."""
    any_of_them.delay("a", SECRET, 4111_1111, more=SECRET)
    headers = headers_of(jobs()[0])
    assert headers["argsrepr"] == f"('a', '{HIDDEN}', '{HIDDEN}')"
    assert SECRET not in headers["kwargsrepr"]


def test_what_the_caller_shows_stays() -> None:
    """Who hides all of a call hides more than the task does."""
    keep.apply_async(("a", SECRET), argsrepr="(…)", kwargsrepr="{…}")
    headers = headers_of(jobs()[0])
    assert (headers["argsrepr"], headers["kwargsrepr"]) == ("(…)", "{…}")


def test_the_event_of_a_message_hides_it() -> None:
    """Celery tells of it as it is sent, where the setting says so."""
    message = app.amqp.as_task_v2(
        "one", keep.name, ("a", SECRET), {"ways": [SECRET]}, create_sent_event=True
    )
    hide(app, keep, message)
    assert message.sent_event["args"] == f"('a', '{HIDDEN}')"
    assert message.sent_event["kwargs"] == message.headers["kwargsrepr"]


def test_a_message_without_a_job_hides_it(redis_client: Any) -> None:
    """Under the mode off Celery sends it itself."""
    set_to(keep, "off")
    try:
        keep.delay("a", SECRET)
    finally:
        reading.forget()
    assert not Job.objects.exists()
    raw = b"".join(redis_client.lrange(keep.lane_queue(), 0, -1)).decode()
    assert HIDDEN in raw
    assert SECRET not in raw, "the body is in base64"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"key": "a:{secret}"}, "key 'a:{secret}' shows 'secret', which is sensitive"),
        ({"key": "a:{name}", "tenant": "{secret}"}, "tenant '{secret}' shows 'secret'"),
        ({"key": "a:{name}", "sensitive": ("secrte",)}, "sensitive names 'secrte'"),
        ({"key": "a:{name}", "sensitive": "secret"}, "must be a tuple of names"),
    ],
)
def test_a_declaration_that_would_show_it_is_refused(options: dict[str, Any], told: str) -> None:
    """Keys and tenants are shown everywhere."""
    with pytest.raises(ImproperlyConfigured, match=re.escape(told)):

        @guarded_task(**{"sensitive": ("secret",), **options})
        def refused_task(name: str, secret: str) -> None:
            """Never made."""


def test_a_coalesce_key_may_not_show_it() -> None:
    """Nor this one."""
    with pytest.raises(ImproperlyConfigured, match="coalesce key"):

        @guarded_task(sensitive=("secret",))
        @coalesce("{secret}")
        def refused_task(secret: str) -> None:
            """Never made."""


def said(ask: Callable[[], Any]) -> str:
    """What a refused call says, with its causes, and the site's error report of it."""
    try:
        ask()
    except (GuardError, TypeError) as error:
        kind, value, trace = sys.exc_info()
        with override_settings(DEBUG=False):
            reporter = ExceptionReporter(RequestFactory().get("/"), kind, value, trace)
            # The site's own frames, and those of Celery's canvas, are for the site to hide.
            frames = [f for f in reporter.get_traceback_frames() if OURS in f["filename"]]
        assert frames
        told = [str(error), repr([frame["vars"] for frame in frames])]
        while error.__cause__ is not None:
            error = error.__cause__  # type: ignore[assignment]
            told.append(str(error))
        return "\n".join(told)
    raise AssertionError("nothing was refused")


REFUSED: dict[str, Callable[[], Any]] = {
    "TypeError: too many": lambda: keep.delay("a", SECRET, [], SECRET),
    "TypeError: unknown": lambda: keep.delay("a", SECRET, other=SECRET),
    "TypeError: missing": lambda: keep.delay(secret=SECRET),
    "NotSerializable": lambda: keep.delay("a", {SECRET}),
    "NotSerializable: keys": lambda: keep.delay("a", {4111_1111_1111: SECRET}),
    "NotSerializable: lost": lambda: keep.delay("a", [SECRET, object()]),
    "NotSerializable: many": lambda: enqueue_many([keep.s("a", {SECRET})]),
    "NotSerializable: step": lambda: chain(keep.si("a", SECRET), keep.si("b", {SECRET})).delay(),
    "MissingKey": lambda: keep.delay("", SECRET),
    "MissingKey: no value": lambda: keyed_by_it.delay("a", {"card": SECRET}),
    "MissingKey: a list": lambda: keyed_by_it.delay("a", [4111_1111_1111]),
    "PayloadTooLarge": lambda: keep.delay("a", SECRET * 100_000),
    "BadSchedule": lambda: keep.apply_async(("a", SECRET), countdown="soon"),
    "submit": lambda: keep.submit("a", {SECRET}),
    "on commit, async": lambda: keep.apply_async_on_commit(("a", {SECRET})),
    "on commit": lambda: keep.delay_on_commit("a", {SECRET}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_does_not_quote_it(name: str) -> None:
    """Nor does the site's error report of it show what the guard held in its hands."""
    text = said(REFUSED[name])
    assert SECRET not in text
    assert "4111" not in text
    assert not Job.objects.exists()


def test_a_view_that_hides_its_variables_hides_the_canvas_too() -> None:
    """Django's own mark at the view covers all that it calls."""

    @sensitive_variables()
    def view() -> None:
        steps = chain(keep.si("a", SECRET), keep.si("b", {SECRET}))
        steps.delay()

    with pytest.raises(NotSerializable) as refused, override_settings(DEBUG=False):
        view()
    with override_settings(DEBUG=False):
        told = (refused.type, refused.value, refused.tb)
        reporter = ExceptionReporter(RequestFactory().get("/"), *told)
        frames = reporter.get_traceback_frames()
    below = [f for f in frames if "test_hiding" not in f["filename"]]
    assert any("celery/canvas" in frame["filename"] for frame in below)
    assert SECRET not in repr([frame["vars"] for frame in below])


def test_a_batch_does_not_quote_it() -> None:
    """Its keys turn out to be taken at its end."""
    keep.delay("a", SECRET)

    def ask() -> None:
        with batch():
            keep.delay("a", f"{SECRET}-2")
            keep.delay("b", f"{SECRET}-3")

    text = said(ask)
    assert "belongs to job" in text
    assert SECRET not in text


def test_a_taken_key_does_not_quote_it() -> None:
    """Neither of the two calls."""
    keep.delay("a", SECRET)
    text = said(lambda: keep.delay("a", f"{SECRET}-2"))
    assert "belongs to job" in text
    assert SECRET not in text


@pytest.mark.bar
def test_a_busy_key_does_not_quote_it() -> None:
    """What the database says of the wait goes along as the cause."""
    holds, ends = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            keep.delay("a", SECRET)
            holds.set()
            wait(ends)

    done = apart(hold)
    wait(holds)

    def ask() -> None:
        with transaction.atomic():
            limit_lock_waits(1)
            keep.delay("a", SECRET)

    try:
        text = said(ask)
    finally:
        ends.set()
        done.result(LONG)
    assert "kept:a" in text
    assert SECRET not in text


def test_a_full_lane_does_not_quote_it(settings: Any) -> None:
    """A refusal names the limit."""
    lanes = {"high": {"admission": {"depth": 1}}}
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "lanes": lanes}
    keep.delay("a", SECRET)
    with pytest.raises(AdmissionRefused):
        keep.apply_async(("b", SECRET), on_overload="raise")
    text = said(lambda: keep.apply_async(("b", SECRET), on_overload="raise"))
    assert SECRET not in said(lambda: admit(keep, ("b", SECRET)))
    assert "lanes.high.admission.depth" in text
    assert SECRET not in text
