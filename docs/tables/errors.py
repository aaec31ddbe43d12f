"""The errors, as ``celery_guard/errors.py`` has them."""

import inspect

import celery_guard
from celery_guard import errors
from docs.tables.markdown import code, prose, table


def classes() -> list[type[errors.GuardError]]:
    """Every error in the order of the source."""
    return [
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.GuardError)
    ]


def _errors() -> list[str]:
    rows = (
        (code(kind.__name__), code(kind.__mro__[1].__name__), _public(kind), prose(kind.__doc__))
        for kind in classes()
    )
    return table(("error", "is a", "import from", "its message, where nothing more is known"), rows)


def _public(kind: type) -> str:
    home = "celery_guard" if kind.__name__ in celery_guard.__all__ else "celery_guard.errors"
    return code(home)


TABLES = {"errors": _errors}
