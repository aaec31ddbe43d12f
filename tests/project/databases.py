"""Turns the URLs of the environment into Django's database settings."""

import os
from urllib.parse import unquote, urlsplit, urlunsplit

ENGINES = {
    "postgres": "django.db.backends.postgresql",
    "postgresql": "django.db.backends.postgresql",
    "mysql": "django.db.backends.mysql",
}
FALLBACK = "postgresql://postgres@127.0.0.1:5432/guard"


def databases() -> dict[str, dict[str, object]]:
    """The aliases `default` and `other`: two databases on one server."""
    on_mariadb = os.environ.get("GUARD_TEST_DB") == "mariadb"
    if on_mariadb:
        _speak_mysql()
    url = os.environ.get("MARIADB_URL" if on_mariadb else "DATABASE_URL") or FALLBACK
    other = os.environ.get("GUARD_TEST_OTHER_URL") or beside(url)
    return {"default": _database(url), "other": _database(other)}


def beside(url: str) -> str:
    """The URL of the second database, named after the first."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path}_other"))


def _database(url: str) -> dict[str, object]:
    parts = urlsplit(url)
    database: dict[str, object] = {
        "ENGINE": ENGINES[parts.scheme],
        "NAME": parts.path[1:],
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
    }
    if parts.scheme == "mysql":
        database["OPTIONS"] = {"isolation_level": "read committed", "charset": "utf8mb4"}
    return database


def _speak_mysql() -> None:
    # PyMySQL needs no compiler and no client library; Django only asks for the other driver's name.
    import pymysql

    pymysql.install_as_MySQLdb()
