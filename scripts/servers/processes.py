"""Processes of ours: tied to us when they start, and told something with all their descendants."""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from servers.accounts import Account

TETHER = Path(__file__).with_name("tether.py")


def tethered(
    command: Sequence[str], account: Account | None, death_signal: int = signal.SIGKILL
) -> list[str]:
    """`command` as it is started by us: under `account`, and told `death_signal` when we die."""
    uid, gid = (account.uid, account.gid) if account else (-1, -1)
    words = (os.getpid(), int(death_signal), uid, gid)
    return [sys.executable, "-I", "-S", str(TETHER), *map(str, words), *command]


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def listens(port: int) -> bool:
    """Whether somebody accepts connections on this loopback port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def family(pid: int) -> list[int]:
    """`pid` and all its living descendants, parents first."""
    children: dict[int, list[int]] = {}
    for stat_file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # The name in brackets may hold anything; the parent's id is the second word after it.
            words = stat_file.read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(words[1]), []).append(int(stat_file.parent.name))
    tree = [pid]
    for member in tree:
        tree.extend(children.get(member, ()))
    return tree


def signal_family(pid: int, number: int) -> None:
    """Send a signal to `pid` and all its descendants; those already gone don't matter."""
    for member in family(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, number)
