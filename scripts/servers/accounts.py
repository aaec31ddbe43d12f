"""Which account a private copy runs under: servers that refuse root get another one."""

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user and group id to drop to."""

    uid: int
    gid: int


def unprivileged(*names: str) -> Account | None:
    """The first existing account of `names`, or of `nobody`; None where we are not root anyway."""
    if os.geteuid() != 0:
        return None
    for name in (*names, "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    return Account(uid=65534, gid=65534)


def reachable_by_all(path: Path) -> bool:
    """Whether any account may walk to `path` and read it."""
    path = path.resolve()
    if not path.stat().st_mode & stat.S_IROTH:
        return False
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
