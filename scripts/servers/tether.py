"""Run one program that dies with its parent: `tether.py PARENT SIGNAL UID GID PROGRAM ARGS...`.

Started as a file by `private.Private`; it becomes the program (`exec`), so the process id stays.
Linux tells the process by SIGNAL when its parent is gone, however the parent ended; elsewhere the
parent's own tidying is all there is. UID and GID are -1 where the account stays as it is.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def become(parent: int, death_signal: int, uid: int, gid: int, command: list[str]) -> None:
    """Drop to the account, tie the process to its parent and turn into `command`; never returns."""
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        # After the change of account: the kernel forgets the wish when credentials change.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            # The parent died before the wish was made; nobody would ever stop the program.
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    first, second, third, fourth = (int(word) for word in sys.argv[1:5])
    become(first, second, third, fourth, sys.argv[5:])
