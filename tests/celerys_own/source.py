"""Celery's tests as they are in its source release, but for what no test of a site could keep."""

import tarfile
from pathlib import Path

from tests.kit.released import safe_filter

EDITS = {
    # The guard adds its lanes' queues to the app.
    "t/integration/conftest.py": ("if configured != {'celery'}:", "if 'celery' not in configured:"),
    # Ours has a password.
    "t/integration/tasks.py": (
        "return StrictRedis(host=host, port=port, socket_timeout=None)",
        'return StrictRedis.from_url(os.environ["TEST_BROKER"], socket_timeout=None)',
    ),
}
TESTS = "t/integration/test_canvas.py"


class Changed(Exception):
    """This release's tests no longer look as the edits expect."""


def unpack(release: Path, folder: Path) -> Path:
    """Unpack the tests and return the folder that they run in.

    Celery's own code is left out: the installed package is what is tested.

    :raises Changed: when an edit finds no place.
    """
    safely = safe_filter()
    with tarfile.open(release) as archive:
        wanted = [
            member for member in archive.getmembers() if member.name.partition("/")[2][:2] == "t/"
        ]
        archive.extractall(folder, wanted, **safely)
    (root,) = folder.iterdir()
    (root / "pytest.ini").write_text("[pytest]\npython_classes = test_*\n")
    for name, (old, new) in EDITS.items():
        text = (root / name).read_text()
        if text.count(old) != 1:
            raise Changed(f"{name} has {text.count(old)} × {old!r}, not one")
        (root / name).write_text(text.replace(old, new))
    return root
