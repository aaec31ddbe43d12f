"""One setting as a field: its default, the check of its value, and its unit."""

from __future__ import annotations

import dataclasses
from typing import Any


def setting(
    default: Any, check: str = "", choices: tuple[str, ...] = (), unit: str = "seconds"
) -> Any:
    """A field whose value is checked by ``check`` or must be one of ``choices``."""
    return dataclasses.field(default=default, metadata=checked(check, choices, unit))


def checked(check: str, choices: tuple[str, ...] = (), unit: str = "seconds") -> dict[str, Any]:
    """How such a field says what its values must be."""
    return {"check": check, "choices": choices, "unit": unit}
