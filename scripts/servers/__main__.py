"""`python -m servers COMMAND ARGS...`: run a command with a PostgreSQL and a Redis of its own.

The command finds them in `DATABASE_URL` and `REDIS_URL`; its exit code is passed on.
"""

import os
import subprocess
import sys
from pathlib import Path

from servers import ServerUnavailable, running

HOME = Path(__file__).resolve().parents[2] / ".cache" / "servers"


def main(command: list[str]) -> int:
    """Bring the servers up, run the command to its end and stop them."""
    with running({"postgres", "redis"}, HOME, durable=False) as found:
        urls = {"DATABASE_URL": found.database_url, "REDIS_URL": found.redis_url}
        return subprocess.run(command, env={**os.environ, **urls}).returncode


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        sys.exit(main(sys.argv[1:]))
    except ServerUnavailable as error:
        sys.exit(str(error))
