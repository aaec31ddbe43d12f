"""The server of its own for the numbers, and the health that it and the site answer."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from celery_guard.events import Event
from celery_guard.models import LaneSnapshot
from celery_guard.watch import exporter
from celery_guard.watch.exporter import AT_ONCE, Exporter, is_loopback
from celery_guard.watch.metrics import PREFIX
from celery_guard.watch.prometheus import collector
from celery_guard.watch.snapshot import take_snapshot
from tests.kit.processes import Processes
from tests.kit.wait import wait_for
from tests.watch.rows import aged
from tests.watch.scrapes import samples_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.watch.urls")]

TOKEN = "a-token"
FAR = timedelta(minutes=1)


@pytest.fixture
def server() -> Iterator[Exporter]:
    """An exporter that serves in a thread."""
    with Exporter("127.0.0.1", 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def take_fresh_snapshot() -> None:
    """One that is not stale when it is looked at, however slow this machine is."""
    take_snapshot("default")
    LaneSnapshot.objects.update(taken_at=timezone.now() + FAR)


def test_it_serves_what_the_site_would(server: Exporter) -> None:
    """The snapshot's numbers as Prometheus reads them, the advice as JSON, the health as a word."""
    take_fresh_snapshot()
    port = server.server_port
    status, text = ask(port, "/metrics")
    assert status == 200
    assert samples_of(text)[f"{PREFIX}collector_up", ()] == 1
    status, text = ask(port, "/scale.json?lane=high")
    assert (status, list(json.loads(text)["lanes"])) == (200, ["high"])
    assert ask(port, "/healthz") == (200, "ok\n")
    assert ask(port, "/healthz", "HEAD") == (200, "")
    assert ask(port, "/admin")[0] == 404
    assert ask(port, "/metrics", "POST")[0] == 501


def test_the_token_closes_all_but_the_health(server: Exporter, settings: Settings) -> None:
    """As on the site's own pages."""
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "metrics_token": TOKEN}
    take_fresh_snapshot()
    port = server.server_port
    for path in ("/metrics", "/scale.json"):
        for given in ("", "Bearer", "Bearer b-token", TOKEN):
            assert ask(port, path, Authorization=given) == (401, "the token is missing or wrong\n")
        assert ask(port, path, Authorization=f"Bearer {TOKEN}")[0] == 200
    assert ask(port, "/healthz")[0] == 200


def test_without_numbers_that_count_nothing_is_well(server: Exporter) -> None:
    """Never measured, stale, or a database that refuses: 503 with one word, and no advice."""
    port = server.server_port
    assert ask(port, "/healthz") == (503, "stale\n")
    assert ask(port, "/scale.json")[0] == 503
    take_snapshot("default")
    LaneSnapshot.objects.update(taken_at=timezone.now() - FAR)
    assert ask(port, "/healthz") == (503, "stale\n")

    def refuse() -> list[object]:
        raise OperationalError("secret")

    server.collector._lanes._read = refuse  # type: ignore[assignment]
    assert ask(port, "/healthz") == (503, "away\n")
    status, text = ask(port, "/metrics")
    assert (status, samples_of(text)[f"{PREFIX}collector_up", ()]) == (200, 0)


def test_stale_advice_is_refused_and_says_so(server: Exporter) -> None:
    """503 with the reason: whoever scales by it keeps what runs. Never a number, never a 0."""
    take_snapshot("default")
    LaneSnapshot.objects.filter(lane="high").update(taken_at=timezone.now() - FAR)
    LaneSnapshot.objects.exclude(lane="high").update(taken_at=timezone.now() + FAR)
    port = server.server_port
    assert ask(port, "/scale.json") == (503, "the snapshot of high is stale\n")
    assert ask(port, "/scale.json?lane=high") == (503, "the snapshot of high is stale\n")
    assert ask(port, "/scale.json?lane=low")[0] == 200
    assert ask(port, "/scale.json?lane=gone") == (503, "nothing was measured for gone\n")


def test_a_head_is_answered_like_a_get_without_its_body(server: Exporter) -> None:
    """Load balancers and probes ask so: the same status and headers on every path, no byte more."""
    take_fresh_snapshot()
    for path in ("/metrics", "/scale.json", "/healthz", "/admin"):
        got, asked = raw(server, "GET", path), raw(server, "HEAD", path)
        head, _, body = got.partition(b"\r\n\r\n")
        assert body, path
        told, _, nothing = asked.partition(b"\r\n\r\n")
        assert (lasting(told), nothing) == (lasting(head), b""), path


def raw(server: Exporter, method: str, path: str) -> bytes:
    """All that comes back until the connection ends."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(f"{method} {path} HTTP/1.0\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


def lasting(head: bytes) -> list[bytes]:
    """The lines of a head that don't tell the time, nor how long numbers are that change."""
    return [one for one in head.split(b"\r\n") if not one.startswith((b"Date", b"Content-Length"))]


def test_no_answer_is_kept_by_anybody(server: Exporter, settings: Settings) -> None:
    """Numbers of a moment ago, and a refusal, are wrong a moment later."""
    take_fresh_snapshot()
    assert b"Cache-Control: no-store" in raw(server, "GET", "/healthz")
    for path in ("/metrics", "/scale.json", "/scale.json?lane=gone", "/admin"):
        assert b"Cache-Control: no-store" in raw(server, "GET", path), path
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "metrics_token": TOKEN}
    assert b"Cache-Control: no-store" in raw(server, "GET", "/metrics")


def test_jobs_that_wait_while_nothing_starts_are_no_health(server: Exporter) -> None:
    """Past their objective, none running, none ending."""
    aged("high", seconds=600)
    take_fresh_snapshot()
    assert ask(server.server_port, "/healthz") == (503, "stopped\n")


def test_so_many_are_served_at_once_and_one_more_is_let_go(
    server: Exporter, told: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, without a thread; when they have gone there is room again."""
    monkeypatch.setattr(exporter._Answer, "timeout", 60.0)
    take_fresh_snapshot()
    silent = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(AT_ONCE)]
    wait_for(lambda: free(server) == 0, what="all places to be taken")
    with pytest.raises((http.client.HTTPException, OSError)):
        ask(server.server_port, "/healthz")
    assert [event.name for event in told] == ["watch.exporter_full"]
    for connection in silent:
        connection.close()
    wait_for(lambda: free(server) == AT_ONCE, what="the places")
    assert ask(server.server_port, "/healthz")[0] == 200


def test_a_client_that_never_speaks_is_let_go(
    server: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the connection by itself, and its place is free."""
    assert exporter._Answer.timeout == exporter.PATIENCE
    monkeypatch.setattr(exporter._Answer, "timeout", 0.2)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as silent:
        assert silent.recv(1) == b""
    wait_for(lambda: free(server) == AT_ONCE, what="the place")


def free(server: Exporter) -> int:
    """Places that are free."""
    return int(server._room._value)  # type: ignore[attr-defined]


def test_a_real_one_starts_serves_and_ends(processes: Processes) -> None:
    """On a port of its own, until TERM."""
    take_fresh_snapshot()
    process = processes.python("-m", "tests.project.manage", "guard_exporter", "--port", "0")
    said = wait_for(
        lambda: re.search(r"serving on 127.0.0.1:(\d+)", process.log), timeout=60, what="its port"
    )
    assert ask(int(said[1]), "/healthz") == (200, "ok\n")
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


def test_an_address_for_others_needs_a_token() -> None:
    """Numbers of a site are nobody's business by default."""
    for host in ("0.0.0.0", "::", "192.0.2.1", "shop.example"):
        assert not is_loopback(host)
        with pytest.raises(CommandError, match="metrics_token"):
            call_command("guard_exporter", "--host", host)
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))


def test_a_port_that_is_taken_is_said(server: Exporter) -> None:
    """In one line, not as a traceback."""
    with pytest.raises(CommandError, match="cannot listen on"):
        call_command("guard_exporter", "--port", str(server.server_port))


def test_the_sites_own_health_says_why(client: Client, settings: Settings) -> None:
    """Closed like the metrics; with the token 200, or 503 and the reason."""
    assert client.get("/guard/healthz").status_code == 404
    settings.CELERY_GUARD = {**settings.CELERY_GUARD, "metrics_token": TOKEN}
    assert client.get("/guard/healthz").status_code == 401
    headers = {"Authorization": f"Bearer {TOKEN}"}
    collector()
    take_fresh_snapshot()
    answer = client.get("/guard/healthz", headers=headers)
    assert (answer.status_code, answer.content) == (200, b"ok\n")
    aged("high", seconds=600)
    take_fresh_snapshot()
    answer = client.get("/guard/healthz", headers=headers)
    assert answer.status_code == 503
    assert answer.content.startswith(b"stopped: jobs wait and nothing starts in high")
