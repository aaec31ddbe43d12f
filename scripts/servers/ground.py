"""Where private copies keep their data: folders that go when their owner goes."""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from servers.accounts import Account

PREFIX = "celery-guard-servers-"
LOCK = ".alive"
SETTLED_SECONDS = 60


class Ground:
    """A folder of one run; `folder()` hands out places in it, owned by the server's account."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, name: str, account: Account | None = None) -> Path:
        """A new empty folder that only `account` (or we) can look into."""
        path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.root))
        if account is not None:
            os.chown(path, account.uid, account.gid)
        return path


@contextlib.contextmanager
def ground(home: Path) -> Iterator[Ground]:
    """A `Ground` below `home`, removed at the end together with what killed owners left there.

    As root the folder lies in the system's temporary directory instead: a server that has to run
    under another account could not walk to a home such as /root.
    """
    base = Path(tempfile.gettempdir()) if os.geteuid() == 0 else home
    base.mkdir(parents=True, exist_ok=True)
    sweep(base)
    root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    with (root / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        root.chmod(0o711)
        try:
            yield Ground(root)
        finally:
            shutil.rmtree(root, ignore_errors=True)


def sweep(base: Path) -> None:
    """Remove the folders of owners that died without tidying up.

    The lock, not the process id, says who is alive: ids mean nothing across containers that share
    a temporary directory.
    """
    for root in base.glob(f"{PREFIX}*"):
        if _is_ours(root) and _is_abandoned(root / LOCK):
            shutil.rmtree(root, ignore_errors=True)


def _is_ours(root: Path) -> bool:
    try:
        found = root.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _is_abandoned(lock_path: Path) -> bool:
    try:
        # A folder this young may belong to somebody who has not taken the lock yet.
        if time.time() - lock_path.stat().st_mtime < SETTLED_SECONDS:
            return False
        with lock_path.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError):
        return False
    return True
