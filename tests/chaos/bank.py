"""The client of the provider, as the tasks use it."""

import http.client
import json
import os

from celery_guard import Applied, NotApplied, Provider, RetryAfter
from celery_guard.settle.perform import Sending
from celery_guard.settle.states import Recovery

TIMEOUT = 1.0
# The machine may be busy: what was sent can be applied a while after its caller has given up.
_PROMISES = {"timeout": TIMEOUT, "settle_after": 1.5, "key_window": 86400.0}
KEYED = Provider(name="keyed", recovery=Recovery.KEYED, **_PROMISES)
ASKED = Provider(name="asked", recovery=Recovery.RECONCILABLE, **_PROMISES)


def charge(order: int, sending: Sending, *, keyed: bool) -> dict[str, str]:
    """One charge; any answer but a good one is an exception."""
    wish = {"key": sending.key, "order": order, "keyed": keyed}
    code, answer = ask("POST", "/charge", json.dumps(wish))
    if code == 429:
        raise RetryAfter(0.1)
    if code != 200:
        raise ConnectionError(f"the provider answers {code}")
    return answer


def find(sending: Sending) -> Applied | NotApplied:
    """What became of a charge."""
    _, answer = ask("GET", f"/charge/{sending.key}")
    return Applied({"id": sending.key}) if answer["applied"] else NotApplied()


def ask(
    method: str, path: str, body: str | None = None, timeout: float = TIMEOUT
) -> tuple[int, dict]:
    """One request on a connection of its own."""
    port = int(os.environ["CHAOS_PROVIDER_PORT"])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
