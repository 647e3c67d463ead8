"""Test with the lowest versions of all dependencies: `make lowest`. The environment is .venv-lowest.

uv resolves every requirement of pyproject.toml to its lower bound (`--resolution lowest-direct`), and the
tests that need no server run. A bound that fails here is too low. Arguments replace the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import uv

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".venv-lowest"
#: the rooms whose tests need Onym's dependencies alone
TESTS = ("tests/uri", "tests/common", "tests/sign", "tests/net", "tests/llm", "tests/store", "tests/accounts")
#: no lower bound of these is promised: they judge Onym in its tests, so they are of the versions in uv.lock
GROUPS = ("test",)


def read_name(requirement: str) -> str:
    """The name of a package, as the index spells it."""
    return re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def install() -> Path:
    """Make the environment, and return its Python."""
    program = uv.find()
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pins = FOLDER / "pins.txt"
    make = [program, "venv", "--quiet", "--clear", "--python", sys.executable]
    subprocess.run([*make, str(FOLDER)], check=True)
    python = FOLDER / "bin" / "python"
    resolve = [program, "pip", "compile", "--quiet", "--resolution", "lowest-direct", "--python", str(python)]
    subprocess.run(
        [*resolve, "--extra", "all", str(ROOT / "pyproject.toml"), "--output-file", str(pins)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    groups = [requirement for group in GROUPS for requirement in requirements["dependency-groups"][group]]
    into = [program, "pip", "install", "--quiet", "--python", str(python)]
    rows = requirements["project"]["optional-dependencies"].values()
    direct = {read_name(text) for row in (requirements["project"]["dependencies"], *rows) for text in row}
    lines = pins.read_text(encoding="utf-8").splitlines()
    lowest = [line.partition(" ")[0] for line in lines if "==" in line and read_name(line) in direct]
    # the rest is of the newest versions that go with these
    subprocess.run([*into, *lowest, *groups, "onym[all] @ " + ROOT.as_uri()], check=True)
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
