"""Makes the project's virtual environment and prints the path of its Python; standard library only.

`_install.py demo|dev`. The environment lies in `.venv` and holds what `requirements-demo.lock` or
`requirements.lock` names, installed by uv, plus the project itself, editable. A stamp of everything
that went in makes the second call quick. A call that was killed half-way is taken up by the next.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
CACHE = ROOT / ".cache"
LOCKS = {"demo": ROOT / "requirements-demo.lock", "dev": ROOT / "requirements.lock"}
# The larger environment holds all of the smaller one, in the same versions.
SERVES = {"demo": ("demo", "dev"), "dev": ("dev",)}


class SetupFailed(Exception):
    """Set-up can't go on; the message is one sentence for the user."""


def say(text: str) -> None:
    print(f"celery-guard: {text}", file=sys.stderr, flush=True)


def stamp_of(kind: str) -> str:
    digest = hashlib.sha256()
    for part in (LOCKS[kind].read_bytes(), (ROOT / "pyproject.toml").read_bytes(), bytes(ROOT)):
        digest.update(part)
    return f"{kind} {digest.hexdigest()}"


def is_ready(kind: str) -> bool:
    stamp = VENV / "celery-guard.stamp"
    if not stamp.exists() or not runs(VENV):
        return False
    return stamp.read_text() in {stamp_of(serving) for serving in SERVES[kind]}


def runs(environment: Path) -> bool:
    """Whether its Python starts: a moved folder or an upgraded system leaves dead links."""
    python = environment / "bin" / "python"
    test = "import sys; sys.exit(sys.version_info < (3, 11))"
    try:
        return subprocess.run([python, "-I", "-c", test], capture_output=True).returncode == 0
    except OSError:
        return False


def make_venv(place: Path, *, with_pip: bool) -> None:
    shutil.rmtree(place, ignore_errors=True)
    if with_pip:
        require_ensurepip()
    venv.EnvBuilder(symlinks=True, with_pip=with_pip).create(place)


def require_ensurepip() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        raise SetupFailed(
            f"Python {version} is here without its venv module; on Debian and Ubuntu "
            f"'apt install python{version}-venv' brings it."
        ) from None


def find_uv() -> str:
    on_path = shutil.which("uv")
    if on_path:
        return on_path
    tools = CACHE / "tools"
    uv = tools / "bin" / "uv"
    if not (uv.exists() and runs(tools)):
        say("installing uv")
        make_venv(tools, with_pip=True)
        pin = re.search(r"^uv==[\w.]+", LOCKS["dev"].read_text(), re.MULTILINE)
        package = pin.group() if pin else "uv"
        run([str(tools / "bin" / "python"), "-m", "pip", "install", "--quiet", package])
    return str(uv)


def run(command: list[str]) -> None:
    # The output of tools goes to stderr: stdout carries the one line the caller reads.
    if subprocess.run(command, cwd=ROOT, stdout=sys.stderr, env=environment()).returncode:
        raise SetupFailed(
            "packages could not be installed (the reason is above); "
            "is there a network, and a proxy setting if one is needed?"
        )


def environment() -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if name != "PIP_USER"}
    if not os.access(os.path.expanduser("~"), os.W_OK):  # noqa: PTH111 (it may not exist)
        # No home to cache in, as in some containers.
        variables.setdefault("UV_CACHE_DIR", str(CACHE / "uv"))
        variables.setdefault("PIP_CACHE_DIR", str(CACHE / "pip"))
    return variables


def install(kind: str) -> None:
    uv = find_uv()
    if not runs(VENV):
        say(f"making .venv with Python {sys.version.split()[0]}")
        make_venv(VENV, with_pip=False)
    (VENV / "celery-guard.stamp").unlink(missing_ok=True)
    python = ["--python", str(VENV / "bin" / "python")]
    say(f"installing what {LOCKS[kind].name} names")
    run([uv, "pip", "sync", *python, "--require-hashes", str(LOCKS[kind])])
    run([uv, "pip", "install", *python, "--quiet", "--no-deps", "--no-build-isolation", "-e", "."])
    (VENV / "celery-guard.stamp").write_text(stamp_of(kind))


def main(kind: str) -> None:
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_ready(kind):
            install(kind)
    print(VENV / "bin" / "python")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except SetupFailed as error:
        sys.exit(f"celery-guard: {error}")
    except PermissionError as error:
        sys.exit(
            f"celery-guard: {error.filename} can't be written; set-up needs a folder of yours."
        )
