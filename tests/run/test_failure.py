"""An exception as text: safe to store, and grouped with its like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_guard.jobs.storable import LIMIT, storable
from celery_guard.run.failure import failure_of


def _raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as raised:
        return raised


@given(st.text())
def test_any_text_becomes_storable(text: str) -> None:
    """No NUL and no lone surrogate is left, and the size in bytes is bounded."""
    clean = storable(text)
    assert "\x00" not in clean
    assert len(clean.encode()) <= LIMIT


def test_lone_surrogates_and_nul_are_replaced() -> None:
    """What PostgreSQL refuses is replaced, not dropped with the rest."""
    assert storable("a\x00b\udc80c") == "a\ufffdb\ufffdc"


def test_a_long_message_is_cut_between_characters() -> None:
    """The cut never splits a character."""
    assert len(storable("é" * LIMIT).encode()) == LIMIT


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 of 'Anna' failed", "order 2045 of 'Bo' failed"),
        ("at 0x7f3a9c", "at 0x55d01e"),
        ("id 9f86d081884c7d65", "id 60303ae22b998861"),
    ],
)
def test_occurrences_of_one_error_share_a_fingerprint(one: str, other: str) -> None:
    """Numbers, quoted values and hexadecimal ids don't split a group."""
    first, second = failure_of(_raised(ValueError(one))), failure_of(_raised(ValueError(other)))
    assert first.fingerprint == second.fingerprint


def test_other_types_and_places_have_other_fingerprints() -> None:
    """Type and raising function keep groups apart."""

    def elsewhere() -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x") as caught:
        elsewhere()
    prints = {
        failure_of(_raised(ValueError("x"))).fingerprint,
        failure_of(_raised(KeyError("x"))).fingerprint,
        failure_of(caught.value).fingerprint,
    }
    assert len(prints) == 3


def test_an_exception_that_cannot_be_printed_is_still_kept() -> None:
    """A broken __str__ does not hide the failure."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    failure = failure_of(_raised(Broken()))
    assert failure.type.endswith("Broken")
    assert "RuntimeError" in failure.message
