"""Times as people say them."""

from __future__ import annotations

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def spoken(seconds: float) -> str:
    """A number of seconds in its largest fitting unit: ``0.4 s``, ``12 s``, ``3.5 min``."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.1f} s" if 0.05 <= seconds < 10 else f"{seconds:.0f} s"
