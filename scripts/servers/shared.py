"""A name of our own on a server that belongs to somebody else."""

import secrets
from urllib.parse import urlsplit, urlunsplit


def fresh_name() -> str:
    """A database name that nobody else uses."""
    return f"guard_{secrets.token_hex(6)}"


def named(url: str, name: str) -> str:
    """`url` with another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
