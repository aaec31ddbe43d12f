"""How `scripts/canvas` reads Celery's release and what came of its tests."""

import io
import tarfile
from pathlib import Path

import pytest

from tests.celerys_own.__main__ import judge
from tests.celerys_own.known import GUARDED
from tests.celerys_own.source import EDITS, Changed, unpack

DIFFERS = f"{next(iter(GUARDED))}[3]"


def release(folder: Path, texts: dict[str, str]) -> Path:
    packed = folder / "celery.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(f"celery-9/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed


def test_only_the_tests_are_unpacked(tmp_path: Path) -> None:
    """Celery's own code stays packed: the installed package is what is tested."""
    texts = {name: f"a\n{old}\n" for name, (old, _) in EDITS.items()} | {"celery/app.py": ""}
    root = unpack(release(tmp_path, texts), tmp_path / "here")
    assert not (root / "celery").exists()
    for name, (_, new) in EDITS.items():
        assert (root / name).read_text() == f"a\n{new}\n"


def test_a_release_that_looks_otherwise_is_refused(tmp_path: Path) -> None:
    """An edit that found no place would have the tests fail for a reason that nobody sees."""
    with pytest.raises(Changed, match="not one"):
        unpack(release(tmp_path, dict.fromkeys(EDITS, "")), tmp_path / "here")


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        ({"test_chain::test_one": "passed", DIFFERS: "failed"}, 0),
        ({"test_chain::test_one": "failed", "test_chain::test_two": "passed"}, 1),
        ({"test_chain::test_one": "passed", DIFFERS: "passed"}, 1),
        ({}, 1),
    ],
)
def test_what_is_not_known_fails_the_run(ended: dict[str, str], code: int) -> None:
    """Neither a new difference goes unseen, nor one that is no more, nor a run of nothing."""
    assert judge(ended, plain=False) == code
