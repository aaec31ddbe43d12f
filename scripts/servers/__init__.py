"""Real servers for the demo, the tests and the benchmarks, wherever the project is run.

`running(wants, home)` looks, for each server that is wanted, first in the environment
(`DATABASE_URL`, `REDIS_URL`, `AMQP_URL`, `MARIADB_URL`), then for a program on this machine, which it
starts as a private copy on a free loopback port, then in the installed wheels. RabbitMQ and MariaDB
come in no wheel: a server on the standard loopback port that lets its default account in is used too,
and where nothing is found the answer is None and a note. With `GUARD_TEST_SERVERS=wheels` only wheels
count, so that a bare machine can be tried anywhere.

What can go wrong: PostgreSQL or Redis are wanted and nowhere to be had; then `ServerUnavailable` says
in one sentence what would help.
"""

from servers.copies import private_copy
from servers.errors import ServerUnavailable
from servers.finder import Found, running
from servers.private import Private
from servers.processes import free_port

__all__ = ["Found", "Private", "ServerUnavailable", "free_port", "private_copy", "running"]
