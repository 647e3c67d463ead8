"""Files that hold secrets: readable only by their owner, replaced as a whole, with one writer at a time."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from onym.errors import CredentialError

_OTHERS: Final = 0o077
_POSIX: Final = sys.platform != "win32"
#: what is not there on Windows
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0)
_CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0)


def make_private_folder(folder: Path) -> None:
    """A folder for its owner alone, unless it is there. Raises CredentialError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _make_file_error(folder, "made", error) from None
    require_private_folder(folder)


def require_private_folder(folder: Path) -> None:
    """Raises CredentialError for a folder that is not there, or that others may enter."""
    try:
        found = folder.stat()
    except OSError as error:
        raise _make_file_error(folder, "read", error) from None
    if not stat.S_ISDIR(found.st_mode):
        raise CredentialError(f"{folder} is no folder", code="credential.unreadable")
    _require_owner_only(folder, found, "700")


def read_private_file(file: Path, limit: int) -> bytes:
    """A file of at most `limit` octets that nobody else may read. Raises CredentialError.

    A symbolic link is not followed: it could lead out of a folder that was checked.
    """
    try:
        # not to wait for whoever would write into a FIFO
        descriptor = os.open(file, os.O_RDONLY | _NO_FOLLOW | _NO_WAIT | _CLOEXEC)
    except OSError as error:
        raise _make_file_error(file, "read", error) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise CredentialError(f"{file} is no regular file", code="credential.unreadable")
        _require_owner_only(file, found, "600")
        with open(descriptor, "rb", closefd=False) as stream:
            octets = stream.read(limit + 1)
    finally:
        os.close(descriptor)
    if len(octets) > limit:
        raise CredentialError(f"{file} is longer than {limit} octets", code="credential.unreadable")
    return octets


def write_private_file(file: Path, octets: bytes) -> None:
    """Replace a file at one stroke by one that its owner alone may read. Raises CredentialError."""
    part = file.with_name(f".{file.name}.{token_hex(8)}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _CLOEXEC, 0o600)
        with open(descriptor, "wb") as stream:  # noqa: PTH123 - of a descriptor
            stream.write(octets)
            stream.flush()
            os.fsync(descriptor)
        part.replace(file)
        _sync_folder(file.parent)
    except OSError as error:
        raise _make_file_error(file, "written", error) from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def remove_file(file: Path) -> None:
    """The file is gone afterwards. Raises CredentialError."""
    try:
        file.unlink(missing_ok=True)
        _sync_folder(file.parent)
    except OSError as error:
        raise _make_file_error(file, "removed", error) from None


@contextmanager
def lock_file(file: Path) -> Iterator[None]:
    """Hold the lock on `file`, which ends with the process at the latest. Raises CredentialError."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | _NO_FOLLOW | _CLOEXEC, 0o600)
    except OSError as error:
        raise _make_file_error(file, "locked", error) from None
    try:
        _lock_descriptor(descriptor)
        yield
    finally:
        os.close(descriptor)


if sys.platform == "win32":  # pragma: no cover - the tests run where there is fcntl
    import msvcrt

    def _lock_descriptor(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)

    def _sync_folder(folder: Path) -> None:
        """Windows has no folders to flush."""

else:
    import fcntl

    def _lock_descriptor(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def _sync_folder(folder: Path) -> None:
        """What was renamed in it stays so after a loss of power."""
        descriptor = os.open(folder, os.O_RDONLY | _CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _require_owner_only(path: Path, found: os.stat_result, mode: str) -> None:
    if not _POSIX:  # pragma: no cover - Windows keeps access lists instead
        return
    if found.st_uid != os.geteuid():
        raise CredentialError(
            f"{path} belongs to another user",
            code="credential.owner",
            hint=f"chown {os.geteuid()} {shlex.quote(str(path))}, or run as its owner",
        )
    if found.st_mode & _OTHERS:
        raise CredentialError(
            f"others may use {path} (mode {stat.S_IMODE(found.st_mode):04o})",
            code="credential.permissions",
            hint=f"chmod {mode} {shlex.quote(str(path))}",
        )


def _make_file_error(path: Path, done: str, error: OSError) -> CredentialError:
    code = "credential.missing" if isinstance(error, FileNotFoundError) else "credential.unreadable"
    return CredentialError(f"{path} cannot be {done}: {error.strerror}", code=code)
