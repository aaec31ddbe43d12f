"""check, migrate, one worker, one job in a transaction, its result: with the installed package only."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import django  # noqa: E402
import smoke_app  # noqa: E402

import celery_guard  # noqa: E402

django.setup()

import smoke_tasks  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import transaction  # noqa: E402


def main() -> None:
    """Exits non-zero when the job does not come back within 30 seconds."""
    if HERE.parents[1] in Path(celery_guard.__file__).parents:
        sys.exit("this is the checkout, not the installed package")
    call_command("check", fail_level="WARNING")
    call_command("makemigrations", "--check", "--dry-run")
    call_command("migrate", verbosity=0)
    arguments = ["-A", smoke_app.__name__, "worker", "-l", "INFO", "-c", "1"]
    worker = subprocess.Popen([sys.executable, "-m", "celery", *arguments], cwd=HERE)
    try:
        with transaction.atomic():
            job = smoke_tasks.double.delay(21)
        answer = job.get(timeout=30)
    finally:
        worker.terminate()
        worker.wait(30)
    if answer != 42:
        sys.exit(f"the answer was {answer!r}")


if __name__ == "__main__":
    main()
