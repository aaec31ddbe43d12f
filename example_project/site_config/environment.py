"""Reading settings from the environment."""

from urllib.parse import parse_qsl, unquote, urlsplit

ENGINES = {
    "postgres": "django.db.backends.postgresql",
    "postgresql": "django.db.backends.postgresql",
    "mysql": "django.db.backends.mysql",
    "mariadb": "django.db.backends.mysql",
}


def database(url: str) -> dict[str, object]:
    """The ``DATABASES`` entry for ``scheme://user:password@host:port/name?option=value``.

    :raises ValueError: for a scheme that the shop does not run on.
    """
    parts = urlsplit(url)
    if parts.scheme not in ENGINES:
        raise ValueError(f"DATABASE_URL: {parts.scheme!r} is none of {', '.join(ENGINES)}")
    return {
        "ENGINE": ENGINES[parts.scheme],
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "OPTIONS": dict(parse_qsl(parts.query)),
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
    }
