"""The measuring process of one contender: `python -m benchmarks.child SCENARIO PARAMS_JSON`.

A scenario with `measure` prints one RESULT line. One with `prepare` prints READY, then a RESULT
line for each line read from standard input, and cleans up at its end.
"""

import json
import signal
import sys
from collections.abc import Mapping

import django


def main() -> None:
    """Measure what the command line and the environment say."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` blocks run
    name, params = sys.argv[1], json.loads(sys.argv[2])
    django.setup()
    from benchmarks import contenders, scenarios

    scenario, contender = scenarios.load(name), contenders.current()
    assert contender is not None
    if not scenarios.sliced(scenario):
        _report(scenario.measure(contender, params))
        return
    one_slice = scenario.prepare(contender, params)
    print("READY", flush=True)
    for _ in sys.stdin:
        _report(one_slice())
    contender.reset()


def _report(metrics: Mapping[str, float]) -> None:
    print("RESULT " + json.dumps(metrics), flush=True)


if __name__ == "__main__":
    main()
