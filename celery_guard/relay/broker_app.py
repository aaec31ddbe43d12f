"""Which Celery app a relay speaks for, and how another process finds the same one."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any

from celery import Celery, current_app
from celery.app.utils import find_app

from celery_guard.conf import guard_settings

_SEARCHED_FIRST = ("app", "celery", "celery_app")
_loaded: weakref.WeakSet[Celery] = weakref.WeakSet()
_loading = threading.RLock()


def load_app(path: str = "") -> Celery:
    """The app at an import path (``proj.celery:app``), else the process' default app.

    A Django project that follows Celery's manual makes its app when it is imported, so the
    default app is there after ``django.setup()``.
    """
    # The proxy would go on to mean whatever is current where it is used.
    default: Any = current_app
    app: Celery = find_app(path) if path else default._get_current_object()
    return app


def site_app(path: str = "") -> Celery:
    """The same with the site's tasks: for what must know all of them, as a worker does."""
    app = load_app(path)
    load_tasks(app)
    return app


def load_tasks(app: Celery) -> None:
    """Import the modules of the site's tasks, once, as a worker does when it starts.

    Raises whatever a module raises when it is imported; the next call tries again.
    """
    with _loading:
        if app in _loaded:
            return
        # Before the import: Celery runs Django's checks on the way, and ours ask for the tasks.
        _loaded.add(app)
        try:
            app.loader.import_default_modules()
        except BaseException:
            _loaded.discard(app)
            raise


def path_of(app: Celery) -> str:
    """An import path at which another process finds ``app``; empty when there is none.

    However the worker was told of its app, the module that holds it is loaded by now.
    """
    for name, module in list(sys.modules.items()):
        if name == "__main__" or name.partition(".")[0] == "celery":
            continue
        names = getattr(module, "__dict__", {})
        for attribute in (*_SEARCHED_FIRST, *names):
            if names.get(attribute) is app:
                return f"{name}:{attribute}"
    return ""


def ledgers(app: Celery) -> list[str]:
    """The databases that hold a ledger: the default one, and those that guarded tasks name."""
    declared = [getattr(task, "guard", None) for task in app.tasks.values()]
    aliases = {guard.alias for guard in declared if guard is not None}
    return sorted({guard_settings().using, *aliases})
