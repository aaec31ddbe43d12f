"""Builds sdist and wheel, looks into them, and uses the wheel as a newcomer would, in a clean venv.

Run with `DATABASE_URL` and `REDIS_URL` set (`python -m servers`). Exits non-zero at the first fault.
"""

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SMOKE = ROOT / "scripts" / "smoke"
SOURCES = (".py", ".sql", ".lua", ".html", ".css", ".svg", ".js", ".typed")


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    print("+", *command, flush=True)
    subprocess.run(command, check=True, cwd=cwd)


def build(target: Path) -> tuple[Path, Path]:
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", target)
    return next(target.glob("*.whl")), next(target.glob("*.tar.gz"))


def look_into(wheel: Path, sdist: Path) -> None:
    expected = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "celery_guard").rglob("*")
        if path.suffix in SOURCES or path.name == "py.typed"
    }
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    if inside != expected:
        sys.exit(f"the wheel differs from celery_guard/: {sorted(inside ^ expected)}")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = expected | {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"}
    if missing := wanted - names:
        sys.exit(f"the sdist lacks {sorted(missing)}")
    if strange := {name for name in names if name.startswith((".venv", ".cache", ".git/"))}:
        sys.exit(f"the sdist holds {sorted(strange)[:5]}")


def use(wheel: Path, place: Path) -> None:
    python = place / "venv" / "bin" / "python"
    uv = (sys.executable, "-m", "uv")
    run(*uv, "venv", "--quiet", "--python", sys.executable, place / "venv")
    requirements = (f"celery-guard @ {wheel.as_uri()}", "celery[redis]", "psycopg[binary]")
    pins = ("--constraint", ROOT / "requirements.lock")
    run(*uv, "pip", "install", "--quiet", "--python", python, *pins, *requirements)
    run(python, SMOKE / "roundtrip.py", cwd=place)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="celery-guard-package-") as folder:
        place = Path(folder)
        built = build(place / "dist")
        look_into(*built)
        use(built[0], place)
    print("the package is whole, and a job went through it and back")
