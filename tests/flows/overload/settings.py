"""The test site with limits on its lanes, and a web process that keeps its connections."""

from tests.project.settings import *  # noqa: F403
from tests.project.settings import CELERY_GUARD, DATABASES

ROOT_URLCONF = "tests.flows.overload.shopfront"
MIDDLEWARE = ["celery_guard.middleware.AdmissionMiddleware"]
DATABASES = {
    alias: {**found, "CONN_MAX_AGE": None, "ATOMIC_REQUESTS": True}
    for alias, found in DATABASES.items()
}
DEPTHS = {"high": 14, "medium": 30, "low": 60}
"""How many jobs may wait in each lane."""
OBJECTIVE = 10.0
"""Seconds that a job of the high lane should wait at most."""
_OBJECTIVES = {"high": OBJECTIVE, "medium": 60.0, "low": 3600.0}
CELERY_GUARD = {
    **CELERY_GUARD,
    # Where it is late on a busy machine, the low lane takes nothing.
    "snapshot": {"every": 2},
    "lanes": {
        name: {
            **CELERY_GUARD["lanes"].get(name, {}),
            "objective": _OBJECTIVES[name],
            "admission": {"depth": depth},
        }
        for name, depth in DEPTHS.items()
    },
}
