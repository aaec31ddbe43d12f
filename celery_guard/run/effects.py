"""Effects that are declared once and called like functions in any guarded body."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from django.core.exceptions import ImproperlyConfigured

from celery_guard.enqueue.binding import Bound, shape_of
from celery_guard.enqueue.declaration import Template, fill, template_faults
from celery_guard.enqueue.key import fingerprint_of
from celery_guard.errors import NoCurrentJob, NotSerializable
from celery_guard.run.current import running_job
from celery_guard.settle.naming import name_fault
from celery_guard.settle.perform import Sending
from celery_guard.settle.provider import Finding, Provider
from celery_guard.settle.states import Recovery

P = ParamSpec("P")
R = TypeVar("R")


class DeclaredEffect(Generic[P, R]):
    """What ``@effect`` makes of a function: called in a guarded body, it is done there once."""

    def __init__(
        self,
        function: Callable[Concatenate[Sending, P], R],
        name: str,
        *,
        find: Callable[Concatenate[Sending, P], Finding] | None,
        item: Template,
        provider: Provider,
        request: Callable[P, Any] | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.name = name
        self.provider = provider
        self._function = function
        self._find = find
        self._item = item
        self._request = request
        self._shape = shape_of(_without_sending(function))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The provider's answer, from a call now or from one of long ago."""
        if (job := running_job()) is None:
            raise NoCurrentJob(
                f"effect {self.name}: no guarded job is running here that could keep its answer"
            )
        bound = self._shape.bind(args, kwargs)
        find = self._find
        answer = job.effect(
            self.name,
            lambda sending: self._function(sending, *args, **kwargs),
            find=None if find is None else lambda sending: find(sending, *args, **kwargs),
            item=self._item_of(bound),
            request=self._asked(bound) if self._request is None else self._request(*args, **kwargs),
            provider=self.provider,
        )
        return cast(R, answer)

    def _item_of(self, bound: Bound) -> str:
        if not self._item:
            return ""
        return fill(self._item, f"effect {self.name}", bound.with_defaults())

    def _asked(self, bound: Bound) -> str:
        try:
            return fingerprint_of(bound)
        except NotSerializable as error:
            raise NotSerializable(
                f"effect {self.name}: {error}; pass plain values, or say by request=… what is asked"
            ) from error


def effect(
    name: str,
    *,
    find: Callable[Concatenate[Sending, P], Finding] | None = None,
    item: Template = "",
    provider: Provider | None = None,
    request: Callable[P, Any] | None = None,
) -> Callable[[Callable[Concatenate[Sending, P], R]], DeclaredEffect[P, R]]:
    """Make a function that calls the outside world an effect: done once per job and item.

    The function takes a :class:`Sending` (``key``, ``item``, ``again``) and what the body passes,
    and returns an answer that JSON can hold. Called in an ``atomic=False`` body, as
    ``charge(order_id)``, it is :meth:`CurrentJob.effect`, and raises what that raises; the intent
    is committed first, and a later attempt gets the kept answer without a call.

    :param name: what is done; with ``item`` unique within the job.
    :param find: takes the same and returns :class:`Applied`, :class:`NotApplied` or
        :class:`StillUnknown`; asked before anything is sent again.
    :param item: which one of many, a template over the function's arguments (``"{address}"``) or
        a callable that takes them.
    :param provider: what is known about the provider. Without one: ``find`` is asked about a call
        without an answer, and where there is none a person decides.
    :param request: makes what is asked for from the arguments, where they are not it: the same
        effect with another request is refused.
    :raises ImproperlyConfigured: at the definition, naming every fault at once.
    :raises NoCurrentJob: when called outside of a guarded body.
    :raises EffectInTransaction: when called in an ``atomic=True`` body or inside a transaction.
    """
    default = Provider(recovery=Recovery.MANUAL if find is None else Recovery.RECONCILABLE)
    known = provider or default

    def declare(function: Callable[Concatenate[Sending, P], R]) -> DeclaredEffect[P, R]:
        if faults := [*_faults(name, function, item, known, find)]:
            raise ImproperlyConfigured(f"effect {name}: " + "; ".join(faults))
        return DeclaredEffect(function, name, find=find, item=item, provider=known, request=request)

    return declare


def _faults(
    name: object, function: Callable[..., Any], item: Any, provider: Provider, find: Any
) -> Iterator[str]:
    if (fault := name_fault(name)) is not None:
        yield fault
    if hasattr(function, "apply_async"):
        yield "this is a task: an effect is a plain function that the body of a task calls"
        return
    if inspect.iscoroutinefunction(function):
        yield "the function must not be async"
    if not _takes_sending(function):
        yield "the function must take the Sending first, by position"
        return
    yield from template_faults("item", item, _without_sending(function).parameters)
    if provider.recovery == Recovery.RECONCILABLE and find is None:
        yield "a reconcilable provider is asked before anything is sent again: give find=…"
    if provider.recovery in (Recovery.READ_ONLY, Recovery.MANUAL) and find is not None:
        yield f"find is never asked where the provider is {Recovery(provider.recovery).value}"


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _takes_sending(function: Callable[..., Any]) -> bool:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.kind in _POSITIONAL


def _without_sending(function: Callable[..., Any]) -> inspect.Signature:
    whole = inspect.signature(function)
    return whole.replace(parameters=list(whole.parameters.values())[1:])
