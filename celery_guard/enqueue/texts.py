"""The arguments of a call as the texts that a message holds of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

EMBED = ', {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'
"""The end of the body of a call that nothing follows."""

MOST = 8
"""Most values that are looked at here, and how long a text among them may be."""
SHORT = 100
_LARGE = 10**18
# Neither Python nor JSON escapes anything of it, nor do they when they quote it once more.
_PLAIN_TEXT = re.compile(r"[ !#-&(-\[\]-~]*")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """``args`` and ``kwargs`` as a worker's log shows them, escaped for JSON; ``body`` as sent."""

    args: str
    kwargs: str
    body: bytes


def short_texts(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Texts | None:
    """The texts of a few short plain values, None for any others.

    What ``repr``, Celery's ``saferepr`` and the JSON encoder would say, in a fifth of the time.
    """
    shown, sent = plain_texts(args), plain_texts(kwargs.values())
    names = plain_texts(kwargs)
    if shown is None or sent is None or names is None or type(args) not in (tuple, list):
        return None
    if any(type(name) is not str for name in kwargs):
        return None
    listed = ", ".join(shown[0])
    if type(args) is list:
        listed = f"[{listed}]"
    else:
        listed = f"({listed},)" if len(args) == 1 else f"({listed})"
    pairs = zip(names[0], sent[0], strict=True)
    body = ", ".join([f"{name}: {value}" for name, value in zip(names[1], sent[1], strict=True)])
    return Texts(
        args=listed,
        kwargs="{" + ", ".join([f"{name}: {value}" for name, value in pairs]) + "}",
        body=f"[[{', '.join(shown[1])}], {{{body}}}{EMBED}".encode(),
    )


def plain_texts(values: Iterable[Any]) -> tuple[list[str], list[str]] | None:
    """Each of a few short plain values as Python's and as JSON's text, None for any others.

    Nothing in these texts but the quotes of JSON's needs an escape where JSON quotes it once more.
    """
    python: list[str] = []
    json: list[str] = []
    for value in values:
        kind = type(value)
        if kind is int and -_LARGE < value < _LARGE:
            text = str(value)
            python.append(text)
            json.append(text)
        elif kind is str and len(value) < SHORT and _PLAIN_TEXT.fullmatch(value):
            python.append(f"'{value}'")
            json.append(f'"{value}"')
        elif value is None:
            python.append("None")
            json.append("null")
        elif kind is bool:
            python.append("True" if value else "False")
            json.append("true" if value else "false")
        else:
            return None
    return (python, json) if len(python) <= MOST else None


def is_plain(text: str) -> bool:
    """Whether ``text`` stands in Python's and in JSON's as it is."""
    return _PLAIN_TEXT.fullmatch(text) is not None
