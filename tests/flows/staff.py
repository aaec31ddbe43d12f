"""Workers that know this folder's tasks, and what tests ask about jobs."""

import secrets
from collections.abc import Collection, Mapping
from typing import Any

from celery_guard.models import Job
from tests.kit.processes import Process, Processes
from tests.kit.wait import wait_for


def hire(
    processes: Processes,
    *,
    pool: str = "prefork",
    concurrency: int = 1,
    options: Collection[str] = (),
    env: Mapping[str, str] | None = None,
) -> Process:
    """A worker that serves all queues and hosts a relay."""
    name = f"worker-{len(processes.started)}"
    argv = ["-m", "celery", "-A", "tests.run.site", "worker", "-l", "INFO"]
    argv += ["--without-gossip", "--without-mingle", "-n", f"{name}-{secrets.token_hex(3)}@%h"]
    argv += ["-P", pool, "-c", str(concurrency), *options]
    return processes._start(name, argv, env)


def job_of(handle: Any) -> Job:
    """The row of a handle as it is now."""
    found = handle.job
    assert isinstance(found, Job)
    return found


def wait_for_state(handle: Any, *states: str, timeout: float = 30.0) -> Job:
    """The row once it is in one of the states."""

    def reached() -> Job | None:
        job = job_of(handle)
        return job if job.state in states else None

    found = wait_for(reached, timeout=timeout, what=f"{job_of(handle)} to be {states}")
    assert found is not None
    return found
