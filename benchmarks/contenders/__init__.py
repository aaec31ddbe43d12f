"""Who takes part. Importing the registry imports neither Django nor any peer."""

import importlib
from functools import lru_cache

from benchmarks.contenders.contender import Contender
from benchmarks.place import here

MODULES = (
    "plain",
    "locks",
    "celery_outbox",
    "jaiminho",
    "procrastinate",
    "limits",
    "idempotency",
    "guard",
    "site",
)


@lru_cache(maxsize=1)
def registry() -> dict[str, Contender]:
    """Return every contender by name, installed or not."""
    modules = [importlib.import_module(f"{__name__}.{name}") for name in MODULES]
    return {one.name: one for module in modules for one in module.CONTENDERS}


def current() -> Contender | None:
    """Return the contender this process measures, or None."""
    return registry()[here().contender] if here().contender else None


def every_app() -> list[str]:
    """Return the Django apps of all installed contenders, for `migrate`."""
    apps = (one.django_apps for one in registry().values() if one.installed())
    return list(dict.fromkeys(app for each in apps for app in each))
