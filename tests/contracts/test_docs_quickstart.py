"""A newcomer who follows the pages to the letter has a guarded job in the end."""

import json
import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from servers.processes import free_port
from tests.contracts.pages import QUICKSTART, README, TESTING, Block, blocks
from tests.kit.processes import LOG_SHOWN, Process
from tests.kit.wait import wait_for

SHELL = """
import ast, json, os, time

said = []
for label, text in json.loads(os.environ["BLOCKS"]):
    deadline = time.monotonic() + 180
    while "later" in label and job.state != "SUCCESS" and time.monotonic() < deadline:
        time.sleep(0.05)
    for node in ast.parse(text).body:
        code = ast.unparse(node)
        if isinstance(node, ast.Expr):
            said.append(repr(eval(code)))
        else:
            exec(code)
print("SAID", json.dumps(said))
"""
IN_FOLDER = "import os, sys; os.chdir(sys.argv[1]); os.execvp(sys.argv[2], sys.argv[2:])"
OURS = """
DATABASES["default"].update({database!r})
CELERY_BROKER_URL = {redis!r}
"""


LIMITED = """
CELERY_BROKER_URL = "redis://127.0.0.1:{port}/0"
CELERY_GUARD = {{"dependencies": {{"mail": {{"rate": "10/s"}}}}}}
"""
MAILING = """

@guarded_task(key="mail:{order_id}", dependency="mail")
def mail(order_id: int) -> None: ...
"""
MAILED = """
from celery_guard.testing import drain
from django.test import TestCase
from orders.tasks import mail


class Mailed(TestCase):
    def test_it(self) -> None:
        mail.delay(1)
        self.assertEqual(len(drain().succeeded), 1)
"""


class Newcomer:
    """Follows pages in an empty folder, with a database of its own instead of the page's."""

    def __init__(self, home: Path, database: dict[str, str]) -> None:
        self.home = home
        self._database = database
        self._workers: list[Process] = []
        foreign = ("DJANGO_SETTINGS_MODULE", "PYTHONPATH")
        self._env = {name: value for name, value in os.environ.items() if name not in foreign}
        self._env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def follow(self, steps: Sequence[Block]) -> None:
        """Write each file and run each command, but for those that install or stay running."""
        for block in steps:
            if block.language == "sh":
                for line in block.text.splitlines():
                    self._command(line)
            elif block.label.endswith(".py") or ".py, " in block.label:
                self._write(block)

    def _write(self, block: Block) -> None:
        name, _, at_the_end = block.label.partition(", ")
        path = self.home / name
        before = path.read_text() + "\n" if at_the_end else ""
        path.write_text(before + block.text)
        if "DATABASES" in block.text:
            ours = OURS.format(database=self._database, redis=os.environ["REDIS_URL"])
            path.write_text(path.read_text() + ours)

    def _command(self, line: str) -> None:
        match shlex.split(line):
            case ["cd", folder]:
                self.home = self.home / folder
            case ["django-admin", *_] | ["python", "manage.py", "startapp" | "makemigrations", *_]:
                self.run(line)
            case ["python", "manage.py", "migrate", *_]:
                self.run(line)

    def add(self, name: str, text: str) -> None:
        """Write ``text`` at the end of a file."""
        with (self.home / name).open("a") as file:
            file.write(text)

    def run(self, line: str, **env: str) -> str:
        """What the command printed; AssertionError when it fails."""
        done = subprocess.run(
            shlex.split(line),
            cwd=self.home,
            env={**self._env, **env},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, lines: Sequence[str], logs: Path) -> None:
        """Start what a page wants started in terminals of its own."""
        for number, line in enumerate(lines):
            argv = ["-c", IN_FOLDER, str(self.home), *shlex.split(line)]
            self._workers.append(Process(argv, logs / f"terminal-{number}.log", self._env))

    def invoices(self) -> int:
        """How many there are, as the database says."""
        d = self._database
        url = f"host={d['HOST']} port={d['PORT']} dbname={d['NAME']} user={d['USER']}"
        with psycopg.connect(url, password=d["PASSWORD"]) as connection:
            return connection.execute("SELECT count(*) FROM orders_invoice").fetchone()[0]

    def end(self) -> str:
        """Close all terminals; what was printed in them."""
        for worker in self._workers:
            worker.kill()
        return "\n".join(worker.log[-LOG_SHOWN:] for worker in self._workers)


@pytest.fixture
def newcomer(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Newcomer]:
    """Somebody with an empty folder and an empty database."""
    url = urlsplit(os.environ["DATABASE_URL"])
    name = f"guard_newcomer_{secrets.token_hex(4)}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
        database = {
            "NAME": name,
            "USER": url.username or "",
            "PASSWORD": url.password or "",
            "HOST": url.hostname or "",
            "PORT": str(url.port or ""),
        }
        somebody = Newcomer(tmp_path, database)
        try:
            yield somebody
        finally:
            request.node.add_report_section("call", "terminals", somebody.end())
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def before(title: str) -> list[Block]:
    """The quickstart's blocks before one of its headings."""
    text, found, _ = QUICKSTART.read_text().partition(title)
    assert found
    return [block for block in blocks(QUICKSTART) if block.text in text]


def started(page: Path) -> list[list[str]]:
    """The blocks of a page that start workers, as lines."""
    lines = [block.text.splitlines() for block in blocks(page, "sh")]
    return [block for block in lines if block[0].startswith("celery ")]


def promised() -> list[str]:
    """What the quickstart says that its shell blocks say."""
    sayings = re.findall(r"^says (`[^`]+`(?: and `[^`]+`)?)", QUICKSTART.read_text(), re.MULTILINE)
    return [value for saying in sayings for value in re.findall(r"`([^`]+)`", saying)]


@pytest.mark.bar
@pytest.mark.timeout(400)
def test_the_quickstart_works_as_written(newcomer: Newcomer, tmp_path: Path) -> None:
    """Every file as shown, every command in order: the job runs once and each value is as told."""
    newcomer.follow(blocks(QUICKSTART))
    (lines,) = started(QUICKSTART)
    newcomer.start(lines, tmp_path)
    shell = [(b.label, b.text) for b in blocks(QUICKSTART) if b.label.startswith("in the shell")]
    said = newcomer.run("python manage.py shell -c " + shlex.quote(SHELL), BLOCKS=json.dumps(shell))
    assert json.loads(said.partition("SAID ")[2]) == promised()


@pytest.mark.timeout(400)
def test_the_advice_on_testing_works(newcomer: Newcomer) -> None:
    """The tests that a page shows pass in the quickstart's project, with no broker and no worker."""
    newcomer.follow(before("## 4. Start a worker"))
    tests = [block.text for block in blocks(TESTING, "python") if not block.label]
    (newcomer.home / "orders" / "tests.py").write_text("\n\n".join(tests))
    newcomer.run("python manage.py test orders")


@pytest.mark.timeout(400)
def test_the_advice_on_testing_with_a_dependency_works(newcomer: Newcomer) -> None:
    """With the settings for tests that the page shows, no Redis is needed for the limits either."""
    newcomer.follow(before("## 4. Start a worker"))
    newcomer.add("mysite/settings.py", LIMITED.format(port=free_port()))
    newcomer.add("orders/tasks.py", MAILING)
    newcomer.follow([block for block in blocks(TESTING) if block.label.endswith(".py")])
    newcomer.add("orders/tests.py", MAILED)
    (line,) = [b.text for b in blocks(TESTING, "sh") if b.text.startswith("python manage.py")]
    newcomer.run(line)


@pytest.mark.bar
@pytest.mark.timeout(400)
def test_the_readme_works_in_a_project_that_exists(newcomer: Newcomer, tmp_path: Path) -> None:
    """A site with Celery follows the README, with a worker for each lane: one order, one invoice."""
    newcomer.follow(before("## 3. Guard it"))
    newcomer.run("python manage.py makemigrations orders")
    newcomer.run("python manage.py migrate")
    newcomer.follow(blocks(README))
    newcomer.start(started(README)[-1], tmp_path)
    placing = "from orders.placing import place_order; print('ORDER', place_order('Ada').pk)"
    newcomer.run(f"python manage.py shell -c {shlex.quote(placing)}")
    wait_for(lambda: newcomer.invoices() == 1, timeout=180, what="the invoice")
