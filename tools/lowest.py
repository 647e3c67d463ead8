"""Test with the lowest versions of all dependencies: `make lowest`. The environment is .venv-lowest.

uv resolves every requirement of pyproject.toml to its lower bound (`--resolution lowest-direct`), and the
tests that need no server run. A bound that fails here is too low. Arguments replace the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import uv

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".venv-lowest"
#: the rooms whose tests need Onym's dependencies alone
TESTS = ("tests/uri", "tests/common", "tests/sign", "tests/net", "tests/llm", "tests/store", "tests/accounts")


def install() -> Path:
    """Make the environment, and return its Python."""
    program = uv.find()
    make = [program, "venv", "--quiet", "--clear", "--python", sys.executable]
    subprocess.run([*make, str(FOLDER)], check=True)
    python, pins = FOLDER / "bin" / "python", FOLDER / "pins.txt"
    # together with the tools of the tests, which bring some of the same packages
    resolve = [program, "pip", "compile", "--quiet", "--resolution", "lowest-direct", "--python", str(python)]
    resolve += ["--all-extras", "--group", "test", "--output-file", str(pins), "pyproject.toml"]
    subprocess.run(resolve, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    into = [program, "pip", "install", "--quiet", "--python", str(python)]
    subprocess.run([*into, "--requirement", str(pins)], check=True)
    subprocess.run([*into, "--no-deps", "--editable", str(ROOT)], check=True)
    return python


def main(arguments: list[str]) -> int:
    """The exit code of pytest."""
    python = install()
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    command = [str(python), "-m", "pytest", "-q", "-n", "2", *(arguments or TESTS)]
    return subprocess.run(command, cwd=ROOT, check=False, env=os.environ | {"PATH": path}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
