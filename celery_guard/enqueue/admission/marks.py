"""Views that say which work they are going to ask for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from celery_guard.enqueue.admission.admit import admit, check_wait

View = TypeVar("View", bound=Callable[..., Any])
_SAFE = frozenset({"HEAD", "OPTIONS", "TRACE"})

MARKED: list[str] = []
"""The names of the marked views, for the check that the middleware is there."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One job that a view is going to enqueue; callables take the request."""

    task: Any
    args: Callable[[Any], Sequence[Any]] | Sequence[Any]
    kwargs: Callable[[Any], Mapping[str, Any]] | Mapping[str, Any]
    tenant: Callable[[Any], str] | str | None
    max_wait: float | None
    methods: frozenset[str] | None

    def ask(self, request: Any) -> None:
        """Take a place for ``request``.

        :raises AdmissionRefused: when a limit is reached.
        """
        if self._concerns(request.method):
            admit(
                self.task,
                _for(self.args, request),
                _for(self.kwargs, request),
                tenant=_for(self.tenant, request),
                max_wait=self.max_wait,
            )

    def _concerns(self, method: str) -> bool:
        return method not in _SAFE if self.methods is None else method in self.methods


def _for(value: Any, request: Any) -> Any:
    return value(request) if callable(value) else value


def admits(
    task: Any,
    args: Callable[[Any], Sequence[Any]] | Sequence[Any] = (),
    kwargs: Callable[[Any], Mapping[str, Any]] | Mapping[str, Any] | None = None,
    tenant: Callable[[Any], str] | str | None = None,
    max_wait: float | None = None,
    methods: Sequence[str] | None = None,
) -> Callable[[View], View]:
    """Mark a view (function, class, or a view set's method): its requests need a place for ``task``.

    ``celery_guard.middleware.AdmissionMiddleware`` asks for it with :func:`admit` before the view
    and before its transaction, and answers 429 or 503 with ``Retry-After`` where there is none.
    ``args``, ``kwargs`` and ``tenant`` are those of :func:`admit`, or callables that take the
    request (``request.resolver_match.kwargs`` holds what the URL names). A view may be marked
    more than once.

    :param methods: the HTTP methods that enqueue; None: all but HEAD, OPTIONS and TRACE.
    :raises ValueError: when ``max_wait`` is no time by which a job can expire.
    """
    check_wait(max_wait)
    mark = Mark(
        task=task,
        args=args,
        kwargs=kwargs or {},
        tenant=tenant,
        max_wait=max_wait,
        methods=None if methods is None else frozenset(map(str.upper, methods)),
    )

    def decorate(view: View) -> View:
        marked: Any = view
        # A new tuple: a class must not share its marks with the one it inherits from.
        marked.guard_admits = (mark, *getattr(view, "guard_admits", ()))
        MARKED.append(f"{view.__module__}.{view.__qualname__}")
        return view

    return decorate


def marks_of(view: Any, method: str) -> Iterator[Mark]:
    """The marks of ``view``: its own, its class's, and those of the method that will answer."""
    yield from getattr(view, "guard_admits", ())
    kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if kind is None:
        return
    yield from getattr(kind, "guard_admits", ())
    actions = getattr(view, "actions", None) or {}
    handler = actions.get(method.lower(), method.lower())
    yield from getattr(getattr(kind, handler, None), "guard_admits", ())
