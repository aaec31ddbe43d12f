"""The test site with a relay that waits for a hung broker longer than any test."""

from tests.project.settings import *  # noqa: F403
from tests.project.settings import CELERY_GUARD as _GUARD

_RELAY: dict[str, object] = {**_GUARD["relay"], "timeout": 120.0, "budget": 120.0}  # type: ignore[dict-item]
CELERY_GUARD = {**_GUARD, "relay": _RELAY}
