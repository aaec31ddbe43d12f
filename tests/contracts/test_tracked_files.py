"""What is in the repository: nothing large, nothing of one machine, no registry's address."""

import re
import subprocess

import pytest

from tests.kit.ground import ROOT

ONE_MEGABYTE = 1024 * 1024
# In pieces, so that this file does not name one itself.
HOSTS = [
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("npmjs", "org"),
    ("docker", "io"),
    ("crates", "io"),
]
REGISTRIES = re.compile("|".join(re.escape(".".join(host)) for host in HOSTS))
HOMES = re.compile(r"(?<![\w.])/(root|home|Users|work)/\w")


@pytest.fixture(scope="module")
def tracked():
    """All files that are, or would be, in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("this is a copy without a repository")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def lines_matching(paths, pattern):
    """The places where `pattern` stands in text files, as path:number."""
    found = []
    for path in paths:
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            if pattern.search(line.decode(errors="replace")):
                found.append(f"{path.relative_to(ROOT)}:{number}")
    return found


def test_nothing_is_large(tracked):
    """No file is over one megabyte."""
    large = [path for path in tracked if path.stat().st_size > ONE_MEGABYTE]
    assert large == []


def test_no_registry_is_named(tracked):
    """Whoever installs this decides from where; no file names a package registry's host."""
    assert lines_matching(tracked, REGISTRIES) == []


def test_no_path_of_one_machine(tracked):
    """No file knows the home of whoever wrote it."""
    assert lines_matching(tracked, HOMES) == []
