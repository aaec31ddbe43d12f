"""What a run does to its servers and processes, each time until it is over again by itself."""

import contextlib
import dataclasses
import random
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from servers import free_port
from tests.chaos.crew import Crew, Member, start_provider
from tests.chaos.pace import Pace, hang_up
from tests.chaos.stage import Servers, own_stage

OUTAGE = 5.0
"""Seconds for which something is away."""
FROZEN = 6.0
"""Seconds of a frozen worker: three of its leases."""
STEP = 3600
"""By how many seconds a clock goes wrong."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What can be hurt; ``hold`` lets the run go on for some seconds."""

    servers: Servers
    crew: Crew
    clock: Path | None
    dice: random.Random
    hold: Callable[[float], None]

    @property
    def worker(self) -> Member:
        """The first of the workers, the one whose clock can be set."""
        return self.crew.members[0]


def nothing(scene: Scene) -> None:
    """The clean run that the others are compared with."""


def database_restarted(scene: Scene) -> None:
    """An orderly restart, as for an update."""
    scene.servers.database.stop()
    scene.hold(OUTAGE)
    scene.servers.database.start()


def database_crashed(scene: Scene) -> None:
    """Every server process killed at once."""
    scene.servers.database.kill()
    scene.servers.database.start()


def backends_killed(scene: Scene) -> None:
    """All connections cut by the server, three times."""
    for _ in range(3):
        with _own_connection() as cursor:
            _cut_all(cursor)
        scene.hold(1.0)


def connections_exhausted(scene: Scene) -> None:
    """The server has no connection left for anybody new, and cuts those it has."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(_own_connection())
        _take_all(stack)
        _cut_all(first, keep_idle=True)
        _take_all(stack)
        scene.hold(OUTAGE)


def worker_killed(scene: Scene) -> None:
    """One worker with all its children."""
    scene.worker.kill()


def kills_repeated(scene: Scene) -> None:
    """Somebody dies every second."""
    for _ in range(8):
        scene.crew.kill_at_random(scene.dice)
        scene.hold(1.0)


def broker_stopped(scene: Scene) -> None:
    """The broker is away for a while. A Redis without a file comes back empty."""
    scene.servers.broker.stop()
    scene.hold(OUTAGE)
    scene.servers.broker.start()


def broker_frozen(scene: Scene) -> None:
    """The broker takes connections and answers nobody."""
    scene.servers.broker.freeze()
    scene.hold(OUTAGE)
    scene.servers.broker.thaw()


def broker_wiped(scene: Scene) -> None:
    """Every message is gone, and nobody is told."""
    url = scene.servers.broker.url
    if url.startswith("redis"):
        import redis

        with contextlib.closing(redis.Redis.from_url(url)) as client:
            client.flushall()
        return
    from tests.kit.brokers import delete_queues

    # Without its queue a worker is told that its consumer is cancelled, and declares it again.
    delete_queues(url)


def worker_frozen(scene: Scene) -> None:
    """A worker stands still past its lease, and goes on as if nothing had been."""
    scene.worker.signal(signal.SIGSTOP)
    scene.hold(FROZEN)
    scene.worker.signal(signal.SIGCONT)


def clock_ahead(scene: Scene) -> None:
    """A worker's clock jumps an hour ahead, and back."""
    _step(scene, STEP)


def clock_behind(scene: Scene) -> None:
    """A worker's clock falls an hour behind, and comes back."""
    _step(scene, -STEP)


def _step(scene: Scene, seconds: int) -> None:
    assert scene.clock is not None
    _set(scene.clock, seconds)
    scene.hold(OUTAGE)
    _set(scene.clock, 0)


DISTURBANCES: Mapping[str, Callable[[Scene], None]] = {
    "nothing": nothing,
    "database-restarted": database_restarted,
    "database-crashed": database_crashed,
    "backends-killed": backends_killed,
    "connections-exhausted": connections_exhausted,
    "worker-killed": worker_killed,
    "kills-repeated": kills_repeated,
    "broker-stopped": broker_stopped,
    "broker-frozen": broker_frozen,
    "broker-wiped": broker_wiped,
    "worker-frozen": worker_frozen,
    "clock-ahead": clock_ahead,
    "clock-behind": clock_behind,
}
NEED_A_CLOCK = frozenset({"clock-ahead", "clock-behind"})


def clock_of(folder: Path) -> tuple[Path, dict[str, str]] | None:
    """The file that sets a worker's clock, and the environment of that worker.

    None where there is no C compiler.
    """
    if not (compiler := shutil.which("cc")):
        return None
    clock, library = folder / "clock", folder / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    _set(clock, 0)
    return clock, {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(clock)}


def _set(clock: Path, seconds: int) -> None:
    # In place: processes have the file mapped.
    with clock.open("r+b" if clock.exists() else "wb") as file:
        file.write(struct.pack("q", seconds))


@contextlib.contextmanager
def play(pair: str, keep: Path | None, rate: float, seed: int) -> Iterator[tuple[Scene, Pace]]:
    """A crew at work on servers of its own, and how the time goes by there; all ended afterwards.

    :raises Missing: when a server of the pair can't be had.
    """
    with tempfile.TemporaryDirectory(prefix="celery-guard-chaos-") as made:
        folder = keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        with own_stage(pair, folder, port) as servers:
            provider = start_provider(folder, port, seed)
            clock = clock_of(folder)
            pace = Pace(Crew(folder, rate, clock[1] if clock else None))
            scene = Scene(
                servers=servers,
                crew=pace.crew,
                clock=clock[0] if clock else None,
                dice=random.Random(seed),
                hold=pace.hold,
            )
            try:
                yield scene, pace
            finally:
                pace.crew.end()
                provider.kill()
                hang_up()


@contextlib.contextmanager
def _own_connection() -> Iterator[Any]:
    from django.db import connections

    connection = connections["default"].copy()
    try:
        with connection.cursor() as cursor:
            yield cursor
    finally:
        connection.close()


def _cut_all(cursor: Any, *, keep_idle: bool = False) -> None:
    """Cut everybody else; with ``keep_idle`` not those who have never asked anything."""
    if cursor.db.vendor == "postgresql":
        asked = "AND query NOT IN ('', 'SELECT 1')" if keep_idle else ""
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = current_database() AND pid <> pg_backend_pid() {asked}"
        )
        return
    cursor.execute("SELECT id FROM information_schema.processlist WHERE id <> connection_id()")
    for (number,) in cursor.fetchall():
        with contextlib.suppress(Exception):  # gone by itself meanwhile
            cursor.execute(f"KILL {number}")


def _take_all(stack: contextlib.ExitStack) -> None:
    from django.db import OperationalError

    for _ in range(500):
        try:
            stack.enter_context(_own_connection())
        except OperationalError:
            return
