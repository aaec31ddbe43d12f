"""Arguments are bound as ``inspect`` binds them."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_guard.enqueue.binding import shape_of


def several(a: Any, b: Any, c: Any = 1, d: Any = None) -> None:
    """Every argument may be given in both ways."""


def strict(a: Any, /, b: Any, *, c: Any = 1) -> None:
    """Some may not."""


def loose(a: Any, *more: Any, c: Any = 1, **options: Any) -> None:
    """Anything goes."""


def nothing() -> None:
    """Nothing goes."""


VALUES = st.sampled_from([0, 1, 1.0, True, None, "a", (), {}, []])
NAMES = st.sampled_from(["a", "b", "c", "d", "other", 7])


def by_inspect(
    signature: inspect.Signature, args: Any, kwargs: Any
) -> tuple[inspect.BoundArguments | None, str]:
    """What Python itself makes of the call, or its words."""
    try:
        return signature.bind(*args, **kwargs), ""
    except TypeError as error:
        return None, str(error)


@pytest.mark.parametrize("body", [several, strict, loose, nothing])
@given(args=st.lists(VALUES, max_size=5), kwargs=st.dictionaries(NAMES, VALUES, max_size=4))
def test_it_is_what_inspect_makes_of_it(
    body: Callable[..., Any], args: list[Any], kwargs: dict[Any, Any]
) -> None:
    """The same names with the same values in the same order, or the same error."""
    signature = inspect.signature(body)
    wanted, why = by_inspect(signature, args, kwargs)
    if wanted is None:
        with pytest.raises(TypeError, match=re.escape(why)):
            shape_of(signature).bind(args, kwargs)
        return
    bound = shape_of(signature).bind(args, kwargs)
    assert list(bound.arguments.items()) == list(wanted.arguments.items())
    wanted.apply_defaults()
    assert list(bound.with_defaults().items()) == list(wanted.arguments.items())


@pytest.mark.parametrize(
    ("args", "kwargs", "meant"),
    [
        ((1, 2, 1, None), {}, {"a": 1, "b": 2}),
        ((1, 2, True), {}, {"a": 1, "b": 2, "c": True}),
        ((1, 2), {"c": 1.0, "d": 0}, {"a": 1, "b": 2, "c": 1.0, "d": 0}),
    ],
)
def test_a_default_is_left_out(args: Any, kwargs: Any, meant: dict[str, Any]) -> None:
    """Only the very value: ``True`` and ``1.0`` are not the 1 that would stand there."""
    bound = shape_of(inspect.signature(several)).bind(args, kwargs)
    assert bound.without_defaults() == meant
    assert [type(v) for v in bound.without_defaults().values()] == [type(v) for v in meant.values()]


def test_nothing_more_is_left_out_too() -> None:
    """``*more`` and ``**options`` without a value are as if they were not there."""
    shape = shape_of(inspect.signature(loose))
    assert shape.bind((1,), {}).without_defaults() == {"a": 1}
    assert shape.bind((1, 2), {"x": 3}).without_defaults() == {
        "a": 1,
        "more": (2,),
        "options": {"x": 3},
    }
