"""The metrics page: closed without its token, whole in every mode."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import OperationalError
from django.test import Client
from prometheus_client import REGISTRY
from pytest_django import Settings

from celery_guard.watch import views
from celery_guard.watch.metrics import PREFIX
from celery_guard.watch.prometheus import collector, register
from celery_guard.watch.snapshot import take_snapshot
from tests.watch.scrapes import samples_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.watch.urls")]

TOKEN = "a-token"
UP = (f"{PREFIX}collector_up", ())


@pytest.fixture
def open_page(settings: Settings) -> None:
    """A site that has set the token."""
    settings.CELERY_GUARD = {"metrics_token": TOKEN}


def get(client: Client, given: str = f"Bearer {TOKEN}", **headers: str) -> object:
    return client.get("/guard/metrics", headers={"Authorization": given, **headers})


def test_without_the_setting_there_is_no_page(client: Client) -> None:
    """Closed by default: no token opens what has none."""
    for given in ("", "Bearer ", "Bearer None"):
        assert get(client, given).status_code == 404


@pytest.mark.usefixtures("open_page")
@pytest.mark.parametrize("given", ["", "Bearer", "Bearer b-token", TOKEN, "Basic x", "Bearer é"])
def test_without_the_right_token_nothing_is_told(client: Client, given: str) -> None:
    """The answer is the same whatever was wrong, and holds no number."""
    answer = get(client, given)
    assert answer.status_code == 401
    assert answer.content == b"the token is missing or wrong\n"


@pytest.mark.usefixtures("open_page")
def test_the_page_holds_the_lanes_and_is_never_cached(client: Client) -> None:
    """With the token: every sample of the process, the snapshot's included."""
    take_snapshot("default")
    register()
    answer = get(client)
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    found = samples_of(answer.content.decode())
    assert found[UP] == 1
    assert "python_info" in {name for name, _ in found}


@pytest.mark.usefixtures("open_page")
def test_open_metrics_is_spoken_to_whoever_asks_for_it(client: Client) -> None:
    """Content negotiation as Prometheus does it."""
    answer = get(client, Accept="application/openmetrics-text;version=1.0.0")
    assert answer["Content-Type"].startswith("application/openmetrics-text")
    assert answer.content.endswith(b"# EOF\n")


@pytest.mark.usefixtures("open_page")
@pytest.mark.parametrize("page", ["metrics", "healthz", "scale.json"])
def test_a_head_is_answered_without_a_body_and_nothing_is_kept(client: Client, page: str) -> None:
    """As a GET would be, whatever that says; neither a cache nor a browser keeps it."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    got, told = (ask(f"/guard/{page}", headers=headers) for ask in (client.get, client.head))
    assert (told.status_code, told["Content-Type"]) == (got.status_code, got["Content-Type"])
    assert (bool(got.content), told.content) == (True, b"")
    for given in (headers, {}):
        assert client.get(f"/guard/{page}", headers=given)["Cache-Control"] == "no-store"


@pytest.mark.usefixtures("open_page")
def test_only_reading_is_possible(client: Client) -> None:
    """The page takes no POST."""
    assert client.post("/guard/metrics").status_code == 405


@pytest.mark.usefixtures("open_page")
def test_a_database_that_is_away_still_gets_an_answer(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where every request is a transaction: the page says down instead of failing."""

    def refuse() -> list[object]:
        raise OperationalError("connection refused")

    monkeypatch.setattr(collector()._lanes, "_read", refuse)
    answer = get(client)
    assert answer.status_code == 200
    assert samples_of(answer.content.decode())[UP] == 0
    assert "default" in views.metrics._non_atomic_requests
    assert "connection refused" not in answer.content.decode()


@pytest.mark.usefixtures("open_page")
def test_django_prometheus_exports_the_same(client: Client) -> None:
    """Registered on the default registry, the collector is on its page too."""
    register()
    take_snapshot("default")
    text = client.get("/other/metrics").content.decode()
    assert samples_of(text)[UP] == 1


_MULTIPROCESS = """
import os, sys
import django
django.setup()
from django.conf import settings
from django.test import Client
from prometheus_client import Counter
Counter("shop_orders", "orders").inc(3)
client = Client()
sys.stdout.write(client.get("/guard/metrics", headers={"Authorization": "Bearer x"}).content.decode())
"""


@pytest.mark.usefixtures("open_page")
def test_in_multiprocess_mode_the_page_has_both(tmp_path: Path) -> None:
    """django-prometheus leaves custom collectors out there; this page holds all processes' files
    and the lanes."""
    answer = subprocess.run(
        [sys.executable, "-c", _MULTIPROCESS],
        env={
            **os.environ,
            "PROMETHEUS_MULTIPROC_DIR": str(tmp_path),
            "DJANGO_SETTINGS_MODULE": "tests.watch.multiprocess_settings",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    found = samples_of(answer.stdout)
    assert found["shop_orders_total", ()] == 3
    assert UP in found


def test_the_registry_holds_the_collector_once() -> None:
    """Loading the app registered it; every later try is refused."""
    assert not register()
    assert sum(c is collector() for c in REGISTRY._collector_to_names) == 1
