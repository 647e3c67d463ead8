"""What the audit log's parts do to its file: open, lock, read its end, write a line."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from datetime import UTC
from typing import TYPE_CHECKING, Final

from onym.ai.gateway.audit import LONGEST_LINE, split_tail
from onym.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from onym.ai.gateway.audit import Tail

__all__ = ["MODE", "held", "is_named", "open_log", "stamp", "tail_of", "torn", "unusable", "write_line"]

#: of the files: for their owner alone
MODE: Final = 0o600
_OTHERS_WRITE: Final = 0o022


def open_log(path: Path, *, create: bool = True) -> int:
    """The file, open to be appended to. Raises ConfigError, for one that others may write to as well."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    try:
        file = os.open(path, flags, MODE)
    except OSError as error:
        raise unusable(path, error) from None
    if os.fstat(file).st_mode & _OTHERS_WRITE:
        os.close(file)
        raise ConfigError(
            f"{path}: others may write to it, and so make up a log",
            code="audit.unusable",
            hint=f"chmod go-w {path}",
        )
    return file


@contextmanager
def held(path: Path) -> Iterator[int]:
    """The file that has the name now, under its lock. Raises ConfigError, for an OSError inside too."""
    while True:
        file = open_log(path, create=False)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if is_named(file, path):
                yield file
                return
        except OSError as error:
            raise unusable(path, error) from None
        finally:
            os.close(file)


def is_named(file: int, path: Path) -> bool:
    """Has this file the name still? A rotation gives it another."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(file), named)


def tail_of(file: int, size: int) -> Tail:
    """The end of the file; two lines are enough to see one whole. Raises ConfigError."""
    most = 2 * LONGEST_LINE
    octets = os.pread(file, most, max(0, size - most))
    tail = split_tail(octets)
    if not tail.line and size > most:
        raise ConfigError("the audit log's last line is too long", code="audit.malformed")
    return tail


def write_line(file: int, line: bytes) -> None:
    """Write it whole. Raises OSError."""
    if os.write(file, line) != len(line):
        raise OSError("the line was not written whole")


def stamp(at: datetime) -> str:
    """The time as a line says it: UTC, with milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def torn(path: Path, octets: int) -> ConfigError:
    """The error of a log whose last line has no end."""
    return ConfigError(
        f"{path}: the last line has no end ({octets} octets): a process was killed while it wrote",
        code="audit.torn",
        hint=f"look at it, then: onym ai audit mend {path}",
    )


def unusable(path: Path, error: OSError) -> ConfigError:
    """The error of a file that the system refuses."""
    return ConfigError(f"{path}: {error.strerror or type(error).__name__}", code="audit.unusable")
