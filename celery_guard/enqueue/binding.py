"""A call's arguments by name, as ``inspect`` binds them, with less work."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_VARIABLE: Mapping[Any, Any] = {
    inspect.Parameter.VAR_POSITIONAL: (),
    inspect.Parameter.VAR_KEYWORD: {},
}


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """What a body takes. ``plain`` says that every argument may be given in both ways."""

    signature: inspect.Signature
    names: tuple[str, ...]
    required: frozenset[str]
    defaults: Mapping[str, Any]
    plain: bool

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Bound:
        """The call's arguments by name.

        :raises TypeError: when they do not fit.
        """
        names, given = self.names, len(args)
        if self.plain and given <= len(names):
            arguments = dict(zip(names, args, strict=False))
            if kwargs:
                arguments |= {name: kwargs[name] for name in names[given:] if name in kwargs}
            # Whatever was left over, was given twice or is missing, is told by the long way.
            if len(arguments) == given + len(kwargs) and arguments.keys() >= self.required:
                return Bound(self, arguments)
        return Bound(self, self.signature.bind(*args, **kwargs).arguments)


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """The arguments of one call that it names itself."""

    shape: Shape
    arguments: dict[str, Any]

    def with_defaults(self) -> Mapping[str, Any]:
        """The arguments with which the body will run."""
        if len(self.arguments) == len(self.shape.names):
            return self.arguments
        full = inspect.BoundArguments(self.shape.signature, self.arguments.copy())
        full.apply_defaults()
        return full.arguments

    def without_defaults(self) -> dict[str, Any]:
        """The arguments that are not equal to what would stand there without them."""
        defaults = self.shape.defaults
        return {
            name: value
            for name, value in self.arguments.items()
            if not (
                name in defaults and type(value) is type(defaults[name]) and value == defaults[name]
            )
        }


def shape_of(signature: inspect.Signature) -> Shape:
    """The shape of a body with this signature."""
    parameters = signature.parameters
    defaults = {n: _VARIABLE.get(p.kind, p.default) for n, p in parameters.items()}
    defaults = {n: value for n, value in defaults.items() if value is not inspect.Parameter.empty}
    return Shape(
        signature=signature,
        names=tuple(parameters),
        required=frozenset(parameters.keys() - defaults.keys()),
        defaults=defaults,
        plain=all(p.kind is _POSITIONAL for p in parameters.values()),
    )
