"""One run for one output, and what that output belongs to.

A small file beside the output (`OUTPUT.batch`) is locked while a run lasts, and says which input, endpoint
and parameters the results are of. It is durable before the first request is sent.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from onym.errors import UsageError
from onym.llm.batch._files import OPEN, sync_folder, write_all

__all__ = ["Binding", "Bound", "digest", "refuse_other"]

_VERSION: Final = 1
#: where Windows locks one octet, far behind the text
_FAR: Final = 1 << 30
#: a member of the binding, and how a run that differs in it is told
_DIFFERS: Final = {
    "version": "the results were begun by another version of onym",
    "endpoint": "the results are of another endpoint or model",
    "settings": "the results were asked for with other parameters",
    "input": "the results are of another input",
    "order": "the results were begun in another order",
}


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """What results belong to: all of it the same, or they are other results.

    `input` and `settings` are digests, `endpoint` is the endpoint without its key, `rows` how many rows the
    input has (-1 before they were counted).
    """

    endpoint: str
    settings: str
    input: str
    order: str
    rows: int = -1
    version: int = _VERSION


class Bound:
    """The file beside an output, open and locked. Raises UsageError where another run holds it."""

    def __init__(self, output: Path) -> None:
        self.path = output.with_name(output.name + ".batch")
        try:
            self._descriptor = os.open(self.path, OPEN, 0o666)
        except OSError as error:
            raise UsageError(
                f"cannot write {self.path}: {error.strerror}", code="usage.output-file"
            ) from error
        try:
            _lock(self._descriptor)
        except OSError:
            os.close(self._descriptor)
            raise UsageError(
                f"another run is writing {output}", code="usage.batch-locked", hint="wait for it, or stop it"
            ) from None

    def read(self) -> Binding | None:
        """What stands in it; None where that is nothing whole."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        try:
            return msgspec.json.decode(os.read(self._descriptor, 1 << 20), type=Binding)
        except msgspec.MsgspecError:
            # it was cut while it was written, so nothing had been sent
            return None

    def write(self, binding: Binding) -> None:
        """Put this in its place, durably."""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        write_all(self._descriptor, msgspec.json.encode(binding) + b"\n")
        os.fsync(self._descriptor)
        sync_folder(self.path.parent)

    def close(self) -> None:
        """Let others have it."""
        os.close(self._descriptor)


def refuse_other(found: Binding, wanted: Binding) -> None:
    """Raise UsageError where these are not results of the same run, and say in what they differ."""
    for member, text in _DIFFERS.items():
        if getattr(found, member) != getattr(wanted, member):
            if member == "endpoint":
                text += f": {found.endpoint}"
            raise UsageError(
                text,
                code=f"usage.batch-{member}",
                hint="choose another output, or --restart (restart=True) to throw these results away",
            )


def digest(value: Any) -> str:
    """A short name for any plain data."""
    return blake2b(msgspec.json.encode(value, order="sorted", enc_hook=str), digest_size=16).hexdigest()


def _lock(descriptor: int) -> None:
    """Lock the file for as long as it is open; raises OSError where it is locked."""
    if os.name == "nt":
        import msvcrt

        os.lseek(descriptor, _FAR, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
