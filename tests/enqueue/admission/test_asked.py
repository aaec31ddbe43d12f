"""What a request asks for is what its enqueue finds, however it is found out."""

from typing import Any

import pytest

from celery_guard.enqueue.admission import asked
from celery_guard.enqueue.request import identity_of
from celery_guard.errors import MissingKey
from tests.enqueue.admission.tasks import of_shop, once

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("task", "args", "kwargs"),
    [
        (of_shop, ("a",), {}),
        (of_shop, ["a"], {}),
        (of_shop, ("a", 0), {}),
        (of_shop, ("a", 1), {}),
        (of_shop, (), {"shop": "ä", "value": 2}),
        (of_shop, (), {"value": 2, "shop": "b"}),
        (once, ("x" * 300,), {}),
        (once, (1,), {}),
    ],
)
def test_it_is_the_same_before_and_after_a_first_call(task: Any, args: Any, kwargs: Any) -> None:
    """The pattern that an enqueue leaves changes the time only."""
    long_way = identity_of(task, args, kwargs)
    assert asked.identity(task, args, kwargs) == long_way
    task.delay(*args, **kwargs)
    assert asked.identity(task, args, kwargs) == long_way


def test_faults_are_told_as_ever() -> None:
    """What does not fit, or has no key, is refused by the long way's words."""
    once.delay("a")
    with pytest.raises(TypeError):
        asked.identity(once, ("a", "b"), {})
    with pytest.raises(MissingKey):
        asked.identity(once, ("",), {})
