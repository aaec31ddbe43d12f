"""Where the finder looks, in which order, and what it says when there is nothing."""

import psycopg
import pytest

import servers
from servers import binaries
from servers.ground import LOCK, PREFIX, ground
from servers.kinds import kind_of

EVERYTHING = {"postgres", "redis", "amqp", "mariadb"}


@pytest.fixture
def bare(monkeypatch):
    """The environment of a newcomer: no variable of ours is set."""
    for name in ("DATABASE_URL", "REDIS_URL", "AMQP_URL", "MARIADB_URL", "GUARD_TEST_SERVERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.bar
def test_wheels_mode_ignores_the_machine(bare, monkeypatch, tmp_path):
    """With GUARD_TEST_SERVERS=wheels only wheels count: no variable, no program, no open port."""
    monkeypatch.setenv("GUARD_TEST_SERVERS", "wheels")
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    assert binaries.is_from_wheel(binaries.program("postgres"))
    assert binaries.is_from_wheel(binaries.program("redis-server", "valkey-server"))
    with servers.running(EVERYTHING, tmp_path, durable=False) as found:
        assert psycopg.connect(found.database_url).close() is None
        assert set(found.copies) == {"postgres", "redis"}
        assert (found.amqp_url, found.mariadb_url) == (None, None)
        assert [note.split()[0] for note in found.notes] == ["RabbitMQ", "MariaDB"]


def test_an_unknown_mode_is_refused(bare, monkeypatch):
    """A misspelt GUARD_TEST_SERVERS is an error, not a silent default."""
    monkeypatch.setenv("GUARD_TEST_SERVERS", "weels")
    with pytest.raises(ValueError, match="'wheels'"):
        binaries.program("postgres")


def test_a_given_server_gets_a_database_that_is_dropped(bare, monkeypatch, tmp_path, own_server):
    """On somebody's server only a new database is used, and it is gone afterwards."""
    theirs = own_server("postgres").url
    monkeypatch.setenv("DATABASE_URL", theirs)
    with servers.running({"postgres"}, tmp_path) as found:
        name = found.database_url.rpartition("/")[2]
        assert found.database_url != theirs
        assert _databases(theirs) >= {name}
        with pytest.raises(LookupError):
            found.private("postgres")
    assert name not in _databases(theirs)


def test_a_given_server_must_answer(bare, monkeypatch, tmp_path):
    """A variable that leads nowhere is an error that names it; nothing else is tried instead."""
    monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{servers.free_port()}/0")
    with (
        pytest.raises(servers.ServerUnavailable, match="REDIS_URL"),
        servers.running({"redis"}, tmp_path),
    ):
        pass


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_one_sentence_names_the_ways_out(bare, monkeypatch, tmp_path, kind):
    """Where a needed server can't be had, the message says what to set and what to install."""
    monkeypatch.setenv("GUARD_TEST_SERVERS", "wheels")
    monkeypatch.setattr(binaries, "WHEEL_PATHS", {})
    with pytest.raises(servers.ServerUnavailable) as caught, servers.running({kind}, tmp_path):
        pass
    message = str(caught.value)
    assert kind_of(kind).variable in message
    assert "install" in message
    assert "\n" not in message


def test_only_known_servers_can_be_wanted(tmp_path):
    """A misspelt name is refused before anything starts."""
    with pytest.raises(ValueError, match="rabbit"), servers.running({"rabbit"}, tmp_path):
        pass


def test_what_a_killed_owner_left_is_removed(tmp_path, monkeypatch):
    """A folder without a living owner goes at the next start; one that is locked stays."""
    monkeypatch.setattr("servers.ground.SETTLED_SECONDS", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / LOCK).touch()
    with ground(tmp_path) as alive, ground(tmp_path):
        assert not left.exists()
        assert alive.root.exists()


def test_a_young_folder_is_left_alone(tmp_path, monkeypatch):
    """Between making the folder and locking it an owner must not lose it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    young = tmp_path / f"{PREFIX}young"
    young.mkdir()
    (young / LOCK).touch()
    with ground(tmp_path):
        assert young.exists()


def _databases(url):
    with psycopg.connect(url) as connection:
        return {name for (name,) in connection.execute("SELECT datname FROM pg_database")}
