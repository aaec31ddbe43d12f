"""The tree of the release before, for tests in which both work on the same tables."""

import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.kit.ground import ROOT

FIRST = "6d64575c433d"
"""Where the migration history begins; counts as released until a tag does."""


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)


def last_release() -> str:
    """The newest tag of a version that is behind this commit, or the first commit that counts.

    Skips the test where this is no clone with its history.
    """
    if shutil.which("git") is None:
        pytest.skip("the release before is in the history, and there is no git to read it")
    tag = _git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD~")
    if tag.returncode == 0:
        return tag.stdout.strip()
    if _git("cat-file", "-e", f"{FIRST}^{{commit}}").returncode:
        pytest.skip("the release before is in the history, and this is no clone with all of it")
    return FIRST


def unpack(release: str, folder: Path) -> Path:
    """The whole tree of ``release`` in ``folder``."""
    packed = folder / "release.tar"
    subprocess.run(
        ["git", "-C", ROOT, "archive", "--output", packed, release], check=True, capture_output=True
    )
    with tarfile.open(packed) as archive:
        archive.extractall(folder / "release", **safe_filter())
    return folder / "release"


def safe_filter() -> dict[str, Any]:
    """What ``extractall`` takes to unpack nothing outside its folder.

    Python knows it since 3.11.4, and warns without it since 3.12.
    """
    return {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
