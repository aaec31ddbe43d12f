"""The tests of Celery's that do not pass here, each with its reason."""

from collections.abc import Mapping

GUARDED: Mapping[str, str] = {
    "test_chord::test_generator": "a chord's members are one promise, written when it is asked for, "
    "so a generator of members is run through before the first of them starts",
}
"""What a guarded task does otherwise. A test without its parameters stands for all of them."""

UNGUARDED: Mapping[str, str] = {
    "test_chord::test_chord_on_error": "fails without the guard too: the group of its chord's header "
    "has no results",
}
"""What fails without the guard."""


def reason(test: str, *, plain: bool) -> str | None:
    """Why ``test`` is known not to pass."""
    known = UNGUARDED if plain else {**UNGUARDED, **GUARDED}
    return known.get(test) or known.get(test.partition("[")[0])
