"""The rooms import downwards only, and few files know how Celery and kombu are made inside."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.ground import ROOT

PACKAGE = ROOT / "celery_guard"
LIBRARIES = ("celery", "kombu", "billiard", "amqp", "vine")
# What the documentation of Celery and kombu offers to everybody.
OFFERED = {
    "billiard.exceptions",
    "celery",
    "celery.app.task",
    "celery.canvas",
    "celery.exceptions",
    "celery.result",
    "celery.signals",
    "celery.states",
    "kombu",
    "kombu.common",
    "kombu.exceptions",
    "kombu.messaging",
    "kombu.serialization",
    "kombu.utils",
    "kombu.utils.json",
    "kombu.utils.uuid",
}
# Underscored, but public, or of another library: os._exit; Django's QuerySet has no other way to delete
# without reading first.
NOT_PRIVATE = {"_meta", "_get_current_object", "_replace", "_raw_delete", "_exit"}
# The seams: only these files may break when Celery or kombu change inside.
SEAMS = {
    "enqueue/canvas.py": "chains and chords learn to be captured as a whole",
    "enqueue/grouping.py": "a group's result is made as Celery makes it, without its calls",
    "enqueue/handle.py": "the result's meta comes from the ledger first",
    "enqueue/hiding.py": "a call's arguments are shown as Celery shows them",
    "enqueue/install.py": "the send path of an app is wrapped here, and its router",
    "enqueue/publish.py": "a task is looked up without loading all of them",
    "enqueue/template.py": "messages equal to Celery's, made faster",
    "relay/broker_app.py": "the app is found as the celery command finds it",
    "relay/host.py": "a worker that looks for its broker looks after its relay meanwhile",
    "relay/publish/heads.py": "the next message of each priority list is looked at where it lies",
    "relay/publish/redis.py": "one push for a whole batch, as kombu's channel would do it singly",
    "run/backoff.py": "Celery's own formula where a task sets retry_backoff",
    "run/begin.py": "the driver does not send its own BEGIN where one is sent along",
    "run/chords.py": "Celery's own claim on a chord's body is read",
    "run/message.py": "a stored message goes through Celery's own tracer in this process",
    "run/request.py": "Celery's main process must not speak for the ledger",
    "run/worker.py": "start and end of worker processes",
    "testing/delivering.py": "results are kept in memory meanwhile",
    "watch/autoscaler.py": "Celery's autoscaler is led by the lanes' advice",
    "watch/checks/project.py": "Celery's stand-in app is told from the site's own",
}


def touches_of(path):
    """What a file takes from inside the libraries: modules, underscored names and attributes."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if is_inside(name.name))
            case ast.ImportFrom(module=str(module), level=0, names=names):
                if is_inside(module) or (
                    is_foreign(module) and any(name.name.startswith("_") for name in names)
                ):
                    yield module
            case ast.Attribute(attr=name, value=of) if is_private(name):
                if not (isinstance(of, ast.Name) and of.id in ("self", "cls")):
                    yield ast.unparse(node)


def is_foreign(module):
    """Whether the module belongs to Celery or one of its parts."""
    return module.partition(".")[0] in LIBRARIES


def is_inside(module):
    """Whether it does, and is not offered to everybody."""
    return is_foreign(module) and module not in OFFERED


def is_private(name):
    """Whether an attribute is somebody's own business."""
    return name.startswith("_") and not name.startswith("__") and name not in NOT_PRIVATE


def test_rooms_import_downwards_only():
    """watch > run > settle > relay > enqueue > outbox > jobs > conf, errors, events, redis."""
    # In a process of its own: it sets up logging for itself and silences everybody else's.
    linter = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_internals_are_touched_in_the_seams_only():
    """A file outside the seams uses nothing of Celery or kombu that is not offered to all."""
    touching = {
        str(path.relative_to(PACKAGE)): found
        for path in PACKAGE.rglob("*.py")
        if (found := sorted(set(touches_of(path))))
    }
    assert {name: found for name, found in touching.items() if name not in SEAMS} == {}
    assert set(SEAMS) - set(touching) == set(), "a seam that touches nothing any more is none"


@pytest.mark.parametrize("place", ["example_project", "benchmarks", "tests", "scripts", "docs"])
def test_the_package_stands_alone(place):
    """Nothing in the package imports from around it."""
    users = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == place
    ]
    assert users == []
