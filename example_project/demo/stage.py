"""Bringing everything up: servers, the shop's database, and every process of the story."""

import contextlib
import dataclasses
import secrets
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import redis

import servers
from demo.programs import Program, Programs, SetUpError, until
from demo.voice import Voice
from servers.processes import free_port, listens

EXAMPLE = Path(__file__).resolve().parent.parent
LANES = {"high": 2, "medium": 1, "low": 1}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where everything is, and a hand on every program."""

    database_url: str
    redis_url: str
    redis_is_ours: bool
    web_port: int
    provider_port: int
    mailbox: Path
    password: str
    programs: Programs
    workers: dict[str, Program]

    def start_worker(self, lane: str) -> None:
        """Start the worker of ``lane``; :meth:`await_worker` says when it takes jobs."""
        argv = [sys.executable, "-m", "celery", "-A", "site_config", "worker", "-Q", lane]
        argv += ["-c", str(LANES[lane]), "-n", f"{lane}@%h", "-l", "INFO"]
        # Workers that do not greet each other take jobs a second sooner.
        argv += ["--without-mingle", "--without-gossip"]
        self.workers[lane] = self.programs.start(f"worker-{lane}", argv)

    def await_worker(self, lane: str, generation: int = 1) -> None:
        """Wait until the ``generation``-th worker of ``lane`` takes jobs."""
        worker = self.workers[lane]
        until(
            f"waiting for the {lane} worker",
            lambda: worker.log.read_text(errors="replace").count(" ready.") >= generation,
            worker,
        )


@contextlib.contextmanager
def stage(home: Path, voice: Voice) -> Iterator[Stage]:
    """Everything up and running; everything down again at the end, however it comes.

    :raises SetUpError: with one sentence, where a part does not come up.
    """
    with contextlib.ExitStack() as stack:
        with voice.step("Servers: PostgreSQL and Redis of our own"):
            found = stack.enter_context(_servers(home))
            redis_url, ours = _broker(found)
        web, provider, smtp = free_port(), free_port(), free_port()
        password = secrets.token_urlsafe(12)
        env = _environment(found.database_url, redis_url, provider, smtp)
        programs = stack.enter_context(Programs(home, env))
        on = Stage(
            database_url=found.database_url,
            redis_url=redis_url,
            redis_is_ours=ours,
            web_port=web,
            provider_port=provider,
            mailbox=home / "mails.sqlite3",
            password=password,
            programs=programs,
            workers={},
        )
        with voice.step("Database, products and their pictures"):
            manage = [sys.executable, str(EXAMPLE / "manage.py"), "open_shop"]
            programs.run("open_shop", manage, SHOP_ADMIN_PASSWORD=password)
        with voice.step("Payment provider, mail catcher, web server, a worker per lane"):
            _start(on, home, smtp)
        yield on


@contextlib.contextmanager
def _servers(home: Path) -> Iterator[servers.Found]:
    try:
        running = contextlib.ExitStack()
        found = running.enter_context(servers.running({"postgres", "redis"}, home))
    except (servers.ServerUnavailable, ValueError) as error:
        raise SetUpError(str(error)) from error
    with running:
        yield found


def _broker(found: servers.Found) -> tuple[str, bool]:
    if "redis" in found.copies:
        return found.redis_url, True
    # Somebody else's Redis: the demo wipes its database, so it must have been empty before.
    with contextlib.closing(redis.Redis.from_url(found.redis_url)) as client:
        if client.dbsize():
            raise SetUpError(
                "the demo wipes its Redis database, and REDIS_URL names one that is not empty: "
                "name an empty one, or unset REDIS_URL"
            )
    return found.redis_url, False


def _environment(database: str, redis_url: str, provider: int, smtp: int) -> Mapping[str, str]:
    return {
        "PYTHONPATH": str(EXAMPLE),
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "demo.settings",
        "SHOP_SECRET_KEY": secrets.token_urlsafe(32),
        "DATABASE_URL": database,
        "REDIS_URL": redis_url,
        "BROKER_URL": redis_url,
        "PAYMENT_URL": f"http://127.0.0.1:{provider}/charges",
        "SMTP_HOST": "127.0.0.1",
        "SMTP_PORT": str(smtp),
    }


def _start(on: Stage, home: Path, smtp: int) -> None:
    python = sys.executable
    ledger = home / "provider.sqlite3"
    provider = on.programs.start(
        "provider", [python, "-m", "demo.provider", str(on.provider_port), str(ledger)]
    )
    catcher = on.programs.start(
        "catcher", [python, "-m", "demo.catcher", str(smtp), str(on.mailbox)]
    )
    listen = f"--listen=127.0.0.1:{on.web_port}"
    web = on.programs.start(
        "web", [python, "-m", "waitress", listen, "--threads=8", "site_config.wsgi:application"]
    )
    for lane in LANES:
        on.start_worker(lane)
    for program, port in ((provider, on.provider_port), (catcher, smtp), (web, on.web_port)):
        until(f"waiting for {program.name}", partial(listens, port), program)
    for lane in LANES:
        on.await_worker(lane)
