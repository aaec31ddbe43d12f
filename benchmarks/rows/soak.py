"""Row 14: a long run with faults, in the chaos runner's hands and on its own servers."""

import json
import os
import subprocess
import sys

from benchmarks.bench import Bench, NotHere, Reading
from benchmarks.place import ROOT
from benchmarks.table import LEVELS

HOURS_TWO, SHORT = 7200, 1200


def under_faults(bench: Bench) -> Reading:
    """Row 14; the short form takes 20 minutes."""
    seconds = bench.pick(HOURS_TWO, SHORT)
    bench.say(f"{seconds} s of load with a disturbance every minute")
    told = _soak(seconds)
    return Reading(
        values={
            "lost + doubled": [told["lost"] + told["duplicated"]],
            "disturbances not over within 60 s": [
                sum(one["back_s"] is None for one in told["disturbed"])
            ],
            **{f"{name}{LEVELS}": [factor] for name, factor in told["growth"].items()},
        },
        runs=(),
    )


def _soak(seconds: int) -> dict[str, object]:
    paths = (ROOT, ROOT / "scripts", ROOT / "example_project")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--soak", str(seconds), "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    if not ran.stdout:
        raise NotHere(f"the chaos runner ended with {ran.returncode} and no result")
    found: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    return found
