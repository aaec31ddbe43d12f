"""RabbitMQ: one that answers on the standard port, or a private node with its own port mapper."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import amqp

from servers.binaries import program, wheels_only
from servers.ground import Ground
from servers.kinds import Kind
from servers.private import Private, Recipe
from servers.processes import free_port, listens

STANDARD_URL = "amqp://guest:guest@127.0.0.1:5672//"


@contextlib.contextmanager
def recipe(place: Ground, _durable: bool) -> Iterator[Recipe | None]:
    """How to start RabbitMQ, its port mapper running; None where it is not installed."""
    server, epmd = program("rabbitmq-server"), program("epmd")
    if wheels_only() or server is None or epmd is None:
        yield None
        return
    # Left to itself a node starts a port mapper that outlives it, so it gets one of ours.
    mapper = Private(_mapper(epmd, place.folder("epmd")))
    folder = place.folder("rabbitmq")
    try:
        yield Recipe(
            name="RabbitMQ",
            folder=folder,
            argv=lambda port: ["/usr/bin/env", f"RABBITMQ_NODE_PORT={port}", str(server)],
            url=lambda port: f"amqp://guest:guest@127.0.0.1:{port}//",
            ready=answers,
            environ=_environment(folder, mapper.port),
            tools=server.parent,
            patience=90.0,
        )
    finally:
        mapper.stop()


def _mapper(epmd: Path, folder: Path) -> Recipe:
    return Recipe(
        name="Erlang port mapper",
        folder=folder,
        argv=lambda port: [str(epmd), "-address", "127.0.0.1", "-port", str(port)],
        url=lambda port: f"tcp://127.0.0.1:{port}",
        ready=lambda url: listens(int(url.rpartition(":")[2])),
    )


def _environment(folder: Path, mapper_port: int) -> dict[str, str]:
    # Nothing of the machine's own node may leak in: neither its settings nor its plugins.
    files = {
        "RABBITMQ_CONF_ENV_FILE": ("rabbitmq-env.conf", ""),
        "RABBITMQ_CONFIG_FILE": ("rabbitmq.conf", ""),
        "RABBITMQ_ADVANCED_CONFIG_FILE": ("advanced.config", "[].\n"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": ("enabled_plugins", "[].\n"),
    }
    for name, content in files.values():
        (folder / name).write_text(content)
    return {
        **{variable: str(folder / name) for variable, (name, _) in files.items()},
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"guard-{secrets.token_hex(4)}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false -noinput",
        # Makes the start script turn into the node instead of minding it from outside.
        "RABBITMQ_ALLOW_INPUT": "true",
        "ERL_CRASH_DUMP_BYTES": "0",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(mapper_port),
    }


def answers(url: str) -> bool:
    """Whether a RabbitMQ at `url` lets us in and serves its virtual host."""
    parts = urlsplit(url)
    connection = amqp.Connection(
        f"{parts.hostname}:{parts.port or 5672}",
        userid=parts.username or "guest",
        password=parts.password or "guest",
        virtual_host=unquote(parts.path[1:]) or "/",
        connect_timeout=2,
        read_timeout=5,
        write_timeout=5,
    )
    try:
        connection.connect()
    except (OSError, amqp.AMQPError):
        return False
    finally:
        connection.collect()
    return True


KIND = Kind(
    label="RabbitMQ",
    variable="AMQP_URL",
    recipe=recipe,
    answers=answers,
    standard_url=STANDARD_URL,
)
