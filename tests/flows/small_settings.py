"""The test site with a lane that keeps a slot for small jobs."""

from tests.project.settings import *  # noqa: F403
from tests.project.settings import CELERY_GUARD as _GUARD

_MEDIUM: dict[str, object] = {**_GUARD["lanes"].get("medium", {}), "small": {"share": 0.5}}
CELERY_GUARD = {**_GUARD, "lanes": {**_GUARD["lanes"], "medium": _MEDIUM}}
