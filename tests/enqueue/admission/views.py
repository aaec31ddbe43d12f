"""Views that ask for work, and the URLs under which the tests call them."""

from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from celery_guard import AdmissionRefused, admits
from celery_guard.enqueue.admission.models import Reservation
from tests.enqueue.admission.tasks import of_shop, once, work
from tests.project.shop.models import Mark


def _pk(request: HttpRequest) -> tuple[str]:
    assert request.resolver_match is not None
    return (str(request.resolver_match.kwargs["name"]),)


@csrf_exempt
@admits(once, args=_pk)
def order(request: HttpRequest, name: str) -> HttpResponse:
    """Writes a row and asks for one job."""
    Mark.objects.create(name=name)
    once.delay(name)
    return JsonResponse(
        {"atomic": connection.in_atomic_block, "places": Reservation.objects.count()}
    )


@admits(work)
def fails(request: HttpRequest) -> HttpResponse:
    """Enqueues, and then its transaction rolls back."""
    work.delay(1)
    raise ZeroDivisionError


@admits(work)
def forgets(request: HttpRequest) -> HttpResponse:
    """Has a place and asks for nothing."""
    return HttpResponse("nothing to do")


def asks_late(request: HttpRequest) -> HttpResponse:
    """Unmarked: the call itself asks."""
    Mark.objects.create(name="late")
    work.apply_async((1,), on_overload="raise")
    return HttpResponse("done")


@admits(of_shop, args=lambda request: (request.GET["shop"],), methods=["POST"])
def of_a_shop(request: HttpRequest) -> HttpResponse:
    """A tenant's view, which only asks for work on POST."""
    if request.method == "POST":
        of_shop.delay(request.GET["shop"])
    return HttpResponse("done")


@admits(work)
class Orders(View):
    """A class that is marked as a whole."""

    def post(self, request: HttpRequest) -> HttpResponse:
        """Ask for a job."""
        work.delay(1)
        return HttpResponse("done")


class Deliveries(View):
    """One of whose methods is marked."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """Ask for nothing."""
        return HttpResponse("list")

    @admits(work)
    def post(self, request: HttpRequest) -> HttpResponse:
        """Ask for a job."""
        work.delay(1)
        return HttpResponse("done")


@transaction.non_atomic_requests
@admits(work)
async def order_later(request: HttpRequest) -> HttpResponse:
    """An async view, whose database work is in a thread."""

    def write() -> int:
        with transaction.atomic():
            work.delay(1)
        return Reservation.objects.count()

    return JsonResponse({"places": await sync_to_async(write)()})


@admits(work)
@api_view(["POST"])
def rest_order(request: Request) -> Response:
    """A view function of the framework."""
    work.delay(1)
    return Response({"done": True})


class RestLate(APIView):
    """Asks inside the framework's own handling of exceptions."""

    def post(self, request: Request) -> Response:
        """Write a row, then meet a refusal."""
        Mark.objects.create(name="rest")
        raise AdmissionRefused("tenant_rate", "tenants.rate", 2.5)


class RestOrders(ViewSet):
    """A view set of which one action is marked."""

    @admits(work)
    def create(self, request: Request) -> Response:
        """Ask for a job."""
        work.delay(1)
        return Response({"done": True})


rest_orders: Any = RestOrders.as_view({"post": "create"})

urlpatterns = [
    path("order/<str:name>", order),
    path("fails", fails),
    path("forgets", forgets),
    path("late", asks_late),
    path("shop", of_a_shop),
    path("orders", Orders.as_view()),
    path("deliveries", Deliveries.as_view()),
    path("later", order_later),
    path("rest", rest_order),
    path("rest-late", RestLate.as_view()),
    path("rest-orders", rest_orders),
]
