"""`python -m tests.servers.telling WORDS...`: says as JSON what a process can tell of its own start."""

import json
import os
import signal
import sys
import warnings

OURS = ("celery_guard", "demo", "tests.project")


def told() -> dict[str, object]:
    """Everything that a start may set and a program may look at."""
    signals = [number for number in signal.Signals if number < signal.SIGRTMIN]
    return {
        "words": sys.argv[1:],
        "file": sys.argv[0],
        "environ": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109 - as the system has it
        "paths": sys.path,
        "leads its session": os.getsid(0) == os.getpid(),
        "open": [number for number in range(256) if _is_open(number)],
        "signals": {number.name: str(signal.getsignal(number))[:20] for number in signals},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "flags": list(sys.flags),
        "warnings": str(warnings.filters),
        "imported of ours": sorted(name for name in sys.modules if name.startswith(OURS)),
    }


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    print(json.dumps(told()), flush=True)  # noqa: T201
    sys.exit(7)
