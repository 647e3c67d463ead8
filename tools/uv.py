"""Run uv: the one on PATH, or one of our own, installed from the package registry the first time.

`--python-tag` prints the version of this interpreter instead: 3.13, or 3.14t without the GIL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

HOME = Path(__file__).resolve().parents[1] / ".onym" / "uv"
PIN = "uv==0.13.8"


def find() -> str:
    """The path of a uv to use."""
    return shutil.which("uv") or own()


def own() -> str:
    """uv in a private environment, made when it is not there yet."""
    folder = HOME / ("Scripts" if os.name == "nt" else "bin")
    program = folder / ("uv.exe" if os.name == "nt" else "uv")
    if not program.exists():
        print(f"make: installing {PIN} into {HOME}", file=sys.stderr)
        try:
            venv.create(HOME, with_pip=True, clear=True)
        except subprocess.CalledProcessError:
            sys.exit("make: this Python has no ensurepip; install python3-venv, or uv itself, and try again")
        subprocess.run(
            [str(folder / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PIN],
            check=True,
        )
    return str(program)


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - this file runs before anything is installed
        sys.exit("make: Onym needs Python 3.11 or later; say which with `make PYTHON=python3.12 …`")
    if sys.argv[1:] == ["--python-tag"]:
        free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
        print(f"{sys.version_info.major}.{sys.version_info.minor}{free}")
        sys.exit()
    environment = {**os.environ, "UV_PYTHON": os.environ.get("UV_PYTHON", sys.executable)}
    environment.pop("VIRTUAL_ENV", None)
    sys.exit(subprocess.run([find(), *sys.argv[1:]], env=environment, check=False).returncode)
