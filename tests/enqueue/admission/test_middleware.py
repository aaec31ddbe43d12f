"""Requests over HTTP: places before the view's transaction, refusals in HTTP's own words."""

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections
from django.test import AsyncClient, Client
from pytest_django.live_server_helper import LiveServer

from celery_guard.enqueue.admission.models import Reservation
from celery_guard.jobs.models import Job
from tests.enqueue.admission.conftest import Limit
from tests.enqueue.admission.tasks import of_shop, once, work
from tests.enqueue.sessions import LONG, apart
from tests.project.shop.models import Mark

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]

MIDDLEWARE = "celery_guard.middleware.AdmissionMiddleware"


@pytest.fixture(autouse=True)
def _site(settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    settings.ROOT_URLCONF = "tests.enqueue.admission.views"


@pytest.fixture
def server(_site: None) -> Iterator[str]:
    """A real server; one of its own, because a server's middleware is that of its start."""
    live = LiveServer("127.0.0.1")
    yield live.url
    live.stop()


@pytest.fixture
def atomic_requests(settings: Any) -> Iterator[None]:
    """Each view runs in a transaction."""
    for alias in ("default", "other"):
        connections[alias].settings_dict["ATOMIC_REQUESTS"] = True
    yield
    for alias in ("default", "other"):
        connections[alias].settings_dict["ATOMIC_REQUESTS"] = False


@pytest.mark.bar
@pytest.mark.usefixtures("atomic_requests")
def test_the_place_is_taken_before_the_views_transaction(limit: Limit) -> None:
    """With ATOMIC_REQUESTS the view is in a transaction; its place was committed before that."""
    limit(medium={"depth": 5})
    told = Client().post("/order/a").json()
    assert told == {"atomic": True, "places": 0}
    assert (Job.objects.count(), Reservation.objects.count()) == (1, 0)


@pytest.mark.bar
@pytest.mark.usefixtures("atomic_requests")
def test_a_burst_of_requests_in_transactions_is_admitted_exactly(limit: Limit) -> None:
    """Fifty requests at a cap of ten: ten jobs, ten rows of the site, forty refusals."""
    limit(medium={"depth": 10})
    barrier = threading.Barrier(50, timeout=LONG)

    def request(n: int) -> int:
        connections["default"].ensure_connection()
        barrier.wait()
        return Client().post(f"/order/{n}").status_code

    codes = [future.result(LONG) for future in [apart(lambda n=n: request(n)) for n in range(50)]]
    assert (codes.count(200), codes.count(503)) == (10, 40)
    assert (Job.objects.count(), Mark.objects.count(), Reservation.objects.count()) == (10, 10, 0)


def test_a_refusal_is_an_answer(limit: Limit) -> None:
    """503 with Retry-After in whole seconds and a problem body; the view has not run."""
    limit(medium={"depth": 1})
    work.delay(1)
    response = Client().post("/order/a")
    assert response.status_code == 503
    assert response["Content-Type"] == "application/problem+json"
    assert response["Cache-Control"] == "no-store"
    seconds = int(response["Retry-After"])
    assert seconds >= 1
    told = response.json()
    assert (told["status"], told["reason"], told["retry_after"]) == (503, "depth", seconds)
    assert "lanes" not in response.content.decode()
    assert not Mark.objects.exists()


def test_a_quota_is_429(limit: Limit) -> None:
    """The tenant's own limit is the tenant's own fault."""
    limit(tenants={"waiting": 1})
    of_shop.delay("a")
    assert Client().post("/shop?shop=a").status_code == 429
    assert Client().post("/shop?shop=b").status_code == 200


def test_methods_that_enqueue_nothing_ask_for_nothing(limit: Limit) -> None:
    """A form can be looked at while its lane is full."""
    limit(tenants={"waiting": 1})
    of_shop.delay("a")
    assert Client().get("/shop?shop=a").status_code == 200
    assert Client().head("/order/a").status_code == 200


@pytest.mark.usefixtures("atomic_requests")
def test_a_request_that_rolls_back_gives_its_place_back(limit: Limit) -> None:
    """The next one fits at once, without waiting for the reservation's end."""
    limit(medium={"depth": 1})
    client = Client(raise_request_exception=False)
    assert [client.post("/fails").status_code for _ in range(3)] == [500, 500, 500]
    assert (Job.objects.count(), Reservation.objects.count()) == (0, 0)


def test_a_request_that_asks_for_nothing_gives_its_place_back(limit: Limit) -> None:
    """The end of the request is the end of its places."""
    limit(medium={"depth": 1})
    assert [Client().post("/forgets").status_code for _ in range(3)] == [200, 200, 200]
    assert not Reservation.objects.exists()


@pytest.mark.usefixtures("atomic_requests")
def test_a_refusal_inside_the_view_rolls_it_back(limit: Limit) -> None:
    """``on_overload="raise"`` in the view's transaction: 503, and nothing of the view stays."""
    limit(medium={"depth": 1})
    assert Client().post("/late").status_code == 200
    response = Client().post("/late")
    assert (response.status_code, Job.objects.count(), Mark.objects.count()) == (503, 1, 1)
    assert int(response["Retry-After"]) >= 1


def test_a_repeated_request_passes(limit: Limit) -> None:
    """An idempotent repetition is answered however full the lane is."""
    limit(medium={"depth": 1})
    once.delay("a")
    assert Client().post("/order/a").status_code == 200
    assert Client().post("/order/b").status_code == 503


@pytest.mark.parametrize("url", ["/orders", "/deliveries", "/rest", "/rest-orders"])
def test_every_kind_of_view_can_be_marked(limit: Limit, url: str) -> None:
    """Classes, methods of classes, view functions and view sets of the REST framework."""
    limit(medium={"depth": 1})
    assert [Client().post(url).status_code for _ in range(2)] == [200, 503]
    assert (Job.objects.count(), Reservation.objects.count()) == (1, 0)


def test_an_unmarked_method_of_a_class_asks_for_nothing(limit: Limit) -> None:
    """The mark is the method's, not the class's."""
    limit(medium={"depth": 1})
    work.delay(1)
    assert Client().get("/deliveries").status_code == 200


@pytest.mark.parametrize("handler", [None, "celery_guard.drf.refusal_handler"])
@pytest.mark.usefixtures("atomic_requests")
def test_a_refusal_inside_a_rest_view(settings: Any, handler: str | None) -> None:
    """With the handler the framework answers, without it the middleware; both roll back."""
    settings.REST_FRAMEWORK = {"EXCEPTION_HANDLER": handler} if handler else {}
    response = Client().post("/rest-late")
    assert (response.status_code, response["Retry-After"]) == (429, "3")
    assert response["Content-Type"] == "application/problem+json"
    assert not Mark.objects.exists()


def test_the_rest_handler_leaves_other_errors_to_the_framework() -> None:
    """It answers refusals and nothing else."""
    from rest_framework.exceptions import NotFound

    from celery_guard.drf import refusal_handler

    response = refusal_handler(NotFound(), {})
    assert response.status_code == 404
    assert refusal_handler(ZeroDivisionError(), {}) is None


def test_an_async_view_has_its_place(limit: Limit) -> None:
    """The place is taken in a thread, and consumed in another, of the same request."""
    limit(medium={"depth": 1})
    first, second = (async_to_sync(AsyncClient().post)("/later") for _ in range(2))
    assert (first.status_code, first.json()) == (200, {"places": 0})
    assert second.status_code == 503


def test_an_async_view_gives_back(limit: Limit) -> None:
    """A sync view under ASGI that asks for nothing."""
    limit(medium={"depth": 1})
    post = async_to_sync(AsyncClient().post)
    codes = [post("/forgets").status_code for _ in range(3)]
    assert codes == [200, 200, 200]


@pytest.mark.bar
def test_over_real_http(limit: Limit, server: str) -> None:
    """A server, a socket, a client: in while there is room, told when to come back after."""
    limit(medium={"depth": 2})

    def post(name: str) -> tuple[int, str | None]:
        request = urllib.request.Request(f"{server}/order/{name}", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=LONG) as answer:
                return answer.status, answer.headers["Retry-After"]
        except urllib.error.HTTPError as refused:
            return refused.code, refused.headers["Retry-After"]

    answers = [post(name) for name in "abc"]
    assert [code for code, _ in answers] == [200, 200, 503]
    assert answers[2][1] is not None
    assert int(answers[2][1]) >= 1
