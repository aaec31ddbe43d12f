"""What one measurement does: one module a scenario.

A scenario has `DEFAULTS` (its parameters), `MAIN` (the metric a table shows), `HIGHER` (whether
more of it is better), perhaps `ACROSS` (a table with a line a figure), and either

    measure(contender, params) -> Metrics          one process a measurement, or
    prepare(contender, params) -> () -> Metrics    one process a contender, of which `turns`
        lets one short slice run at a time, in turn with the others.

The second is for what lasts milliseconds: its ratios survive a busy machine.
"""

import importlib
from types import ModuleType

NAMES = (
    "enqueue",
    "relay",
    "latency",
    "worker",
    "claims",
    "end_to_end",
    "idle",
    "history",
    "writes",
    "price",
)


def load(name: str) -> ModuleType:
    """Return the scenario's module.

    Raises `KeyError` for a name that is not a scenario.
    """
    if name not in NAMES:
        raise KeyError(name)
    return importlib.import_module(f"{__name__}.{name}")


def sliced(scenario: ModuleType) -> bool:
    """Whether the scenario runs in short slices of a living process."""
    return hasattr(scenario, "prepare")
