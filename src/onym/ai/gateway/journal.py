"""The audit log as a file: appended under a lock, continued after a restart, rotated while a gateway runs."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onym.ai.gateway.audit import LONGEST_LINE, Chain, Tail, Verdict, hash_line, split_tail, verify_lines
from onym.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Journal", "mend", "retain", "rotate", "verify_file"]

_MODE: Final = 0o600
_OTHERS_WRITE: Final = 0o022
_STAMP: Final = "%Y%m%dT%H%M%S%fZ"


class Journal:
    """An open audit log. Raises ConfigError where it cannot be opened, or its last line has no end.

    Two processes may append to one file: each takes the lock and goes on behind the line that stands there.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = -1
        self._size = 0
        self._chain = Chain()
        with self._locked():
            pass

    def append(self, members: dict[str, Any], *, at: datetime) -> str:
        """Write one line and return its hash. Raises OSError where it cannot be written whole."""
        with self._locked():
            line = self._chain.line({"at": _stamp(at), **members})
            try:
                _write(self._file, line)
            except OSError:
                os.ftruncate(self._file, self._size)
                raise
            self._chain.keep(line)
            self._size += len(line)
            return self._chain.previous

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file that has the name now, and know its end."""
        while True:
            if self._file < 0:
                self._file = _open(self.path)
                self._size = -1
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if _same(self._file, self.path):
                break
            self.close()  # rotated: the name is another file's by now
        try:
            self._follow()
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _follow(self) -> None:
        size = os.fstat(self._file).st_size
        if size == self._size:
            return
        tail = _tail(self._file, size)
        if tail.torn:
            raise _torn(self.path, len(tail.torn))
        self._chain = Chain.after(tail.line)
        self._size = size


def rotate(path: str | Path, *, at: datetime) -> Path:
    """Give the log another name and begin a new one that continues its chain. Returns that name.

    A gateway that runs goes on in the new file. Raises ConfigError.
    """
    here = Path(path)
    file = _open(here, create=False)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        tail = _tail(file, os.fstat(file).st_size)
        if tail.torn:
            raise _torn(here, len(tail.torn))
        chain = Chain.after(tail.line)
        kept = here.with_name(f"{here.name}.{at.astimezone(UTC).strftime(_STAMP)}")
        fresh = here.with_name(f"{here.name}.new")
        line = chain.line({"at": _stamp(at), "event": "rotated", "from": kept.name})
        new = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        try:
            _write(new, line)
            os.fsync(new)
        finally:
            os.close(new)
        here.rename(kept)
        fresh.rename(here)
        return kept
    except OSError as error:
        raise _unusable(here, error) from None
    finally:
        os.close(file)


def retain(path: str | Path, *, days: float, at: datetime) -> tuple[Path, ...]:
    """Remove rotated files that were closed more than `days` ago; the log itself stays. Returns what went."""
    here = Path(path)
    oldest = at.astimezone(UTC) - timedelta(days=days)
    gone = []
    for each in sorted(here.parent.glob(f"{here.name}.*Z")):
        try:
            closed = datetime.strptime(each.name.removeprefix(f"{here.name}."), _STAMP).replace(tzinfo=UTC)
        except ValueError:
            continue  # not one of ours
        if closed < oldest:
            each.unlink()
            gone.append(each)
    return tuple(gone)


def mend(path: str | Path, *, at: datetime) -> int:
    """Take out a last line without an end, and say so in a line of its own. Returns the octets taken out."""
    here = Path(path)
    file = _open(here, create=False)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file).st_size
        tail = _tail(file, size)
        if tail.torn:
            chain = Chain.after(tail.line)
            note = {"event": "mended", "octets": len(tail.torn), "was": hash_line(tail.torn)}
            line = chain.line({"at": _stamp(at), **note})
            os.ftruncate(file, size - len(tail.torn))
            _write(file, line)
            os.fsync(file)
        return len(tail.torn)
    except OSError as error:
        raise _unusable(here, error) from None
    finally:
        os.close(file)


def verify_file(path: str | Path, *, previous: str | None = None) -> Verdict:
    """What the file says of itself. Raises ConfigError where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            # a line without an end would be read whole
            return verify_lines(iter(lambda: file.readline(LONGEST_LINE + 2), b""), previous=previous)
    except OSError as error:
        raise _unusable(Path(path), error) from None


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _open(path: Path, *, create: bool = True) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    try:
        file = os.open(path, flags, _MODE)
    except OSError as error:
        raise _unusable(path, error) from None
    if os.fstat(file).st_mode & _OTHERS_WRITE:
        os.close(file)
        raise ConfigError(
            f"{path}: others may write to it, and so make up a log",
            code="audit.unusable",
            hint=f"chmod go-w {path}",
        )
    return file


def _same(file: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(file), named)


def _tail(file: int, size: int) -> Tail:
    """Read from the end: two lines are enough to see one whole."""
    most = 2 * LONGEST_LINE
    octets = os.pread(file, most, max(0, size - most))
    tail = split_tail(octets)
    if not tail.line and size > most:
        raise ConfigError("the audit log's last line is too long", code="audit.malformed")
    return tail


def _write(file: int, line: bytes) -> None:
    if os.write(file, line) != len(line):
        raise OSError("the line was not written whole")


def _torn(path: Path, octets: int) -> ConfigError:
    return ConfigError(
        f"{path}: the last line has no end ({octets} octets): a process was killed while it wrote",
        code="audit.torn",
        hint=f"look at it, then: onym ai audit mend {path}",
    )


def _unusable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path}: {error.strerror or type(error).__name__}", code="audit.unusable")
