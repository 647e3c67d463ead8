"""The audit log as a file: append under a lock, verify, repair, rotate, remove old files. Needs `fcntl`."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onym.ai.gateway.audit import LONGEST_LINE, AuditReport, HashChain, hash_line, split_tail, verify_lines
from onym.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from onym.ai.gateway.audit import Tail

#: of the files: for their owner alone
MODE: Final = 0o600
_OTHERS_WRITE: Final = 0o022


def open_log(path: Path, *, create: bool = True) -> int:
    """The file, open to be appended to. Raises ConfigError, for one that others may write to as well."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    try:
        file = os.open(path, flags, MODE)
    except OSError as error:
        raise make_unusable_error(path, error) from None
    if os.fstat(file).st_mode & _OTHERS_WRITE:
        os.close(file)
        raise ConfigError(
            f"{path}: others may write to it, and so make up a log",
            code="audit.unusable",
            hint=f"chmod go-w {path}",
        )
    return file


@contextmanager
def lock_log(path: Path) -> Iterator[int]:
    """The file that has the name now, under its lock. Raises ConfigError, for an OSError inside too."""
    while True:
        file = open_log(path, create=False)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if is_current_file(file, path):
                yield file
                return
        except OSError as error:
            raise make_unusable_error(path, error) from None
        finally:
            os.close(file)


def is_current_file(file: int, path: Path) -> bool:
    """Has this file the name still? A rotation gives it another."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(file), named)


def read_tail(file: int, size: int) -> Tail:
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


def format_timestamp(at: datetime) -> str:
    """The time as a line says it: UTC, with milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def make_torn_error(path: Path, octets: int) -> ConfigError:
    """The error of a log whose last line has no end."""
    return ConfigError(
        f"{path}: the last line has no end ({octets} octets): a process was killed while it wrote",
        code="audit.torn",
        hint=f"look at it, then: onym ai audit mend {path}",
    )


def make_unusable_error(path: Path, error: OSError) -> ConfigError:
    """The error of a file that the system refuses."""
    return ConfigError(f"{path}: {error.strerror or type(error).__name__}", code="audit.unusable")


class AuditLog:
    """An open audit log. Raises ConfigError where it cannot be opened, or its last line has no end.

    Two processes may append to one file: each takes the lock and goes on behind the line that stands there.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = -1
        self._size = 0
        self._chain = HashChain()
        with self._lock_file():
            pass

    def append(self, members: dict[str, Any], *, at: datetime) -> str:
        """Write one line and return its hash. Raises OSError where it cannot be written whole."""
        with self._lock_file():
            line = self._chain.encode_next({"at": format_timestamp(at), **members})
            try:
                write_line(self._file, line)
            except OSError:
                os.ftruncate(self._file, self._size)
                raise
            self._chain.advance(line)
            self._size += len(line)
            return self._chain.previous

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @contextmanager
    def _lock_file(self) -> Iterator[None]:
        """Hold the lock of the file that has the name now, and know its end."""
        while True:
            if self._file < 0:
                self._file = open_log(self.path)
                self._size = -1
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if is_current_file(self._file, self.path):
                break
            self.close()  # rotated: the name is another file's by now
        try:
            self._sync_chain()
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _sync_chain(self) -> None:
        size = os.fstat(self._file).st_size
        if size == self._size:
            return
        tail = read_tail(self._file, size)
        if tail.torn:
            raise make_torn_error(self.path, len(tail.torn))
        self._chain = HashChain.continue_from(tail.line)
        self._size = size


def repair_log(path: str | Path, *, at: datetime) -> int:
    """Take out a last line without an end, and say so in a line of its own. Returns the octets taken out."""
    here = Path(path)
    with lock_log(here) as file:
        size = os.fstat(file).st_size
        tail = read_tail(file, size)
        if tail.torn:
            chain = HashChain.continue_from(tail.line)
            note = {"event": "mended", "octets": len(tail.torn), "was": hash_line(tail.torn)}
            line = chain.encode_next({"at": format_timestamp(at), **note})
            os.ftruncate(file, size - len(tail.torn))
            write_line(file, line)
            os.fsync(file)
        return len(tail.torn)


def verify_log(path: str | Path, *, previous: str | None = None, begun: Collection[str] = ()) -> AuditReport:
    """What the file says of itself; see `verify_lines`. Raises ConfigError where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            # a line without an end would be read whole
            lines = iter(lambda: file.readline(LONGEST_LINE + 2), b"")
            return verify_lines(lines, previous=previous, begun=begun)
    except OSError as error:
        raise make_unusable_error(Path(path), error) from None


_STAMP: Final = "%Y%m%dT%H%M%S%fZ"
#: what a filesystem without hard links says
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def rotate_log(path: str | Path, *, at: datetime) -> Path:
    """Give the log another name and begin a new one that continues its chain. Returns that name.

    A gateway that runs goes on in the new file. The log has its name at every moment: where the process is
    killed it is still the old file or already the new one, and the next rotation clears up. Raises
    ConfigError; needs a filesystem with hard links.
    """
    here = Path(path)
    with lock_log(here) as file:
        chain = _get_chain_end(file, here)
        kept = here.with_name(f"{here.name}.{at.astimezone(UTC).strftime(_STAMP)}")
        fresh = here.with_name(f"{here.name}.new")
        _remove_leftovers(file, here, fresh)
        try:
            _create_log(
                fresh, chain.encode_next({"at": format_timestamp(at), "event": "rotated", "from": kept.name})
            )
            _link_log(here, kept)
            _replace_log(fresh, here, kept)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        return kept


def remove_old_logs(path: str | Path, *, days: float, at: datetime) -> tuple[Path, ...]:
    """Remove rotated files that were closed more than `days` ago; the log itself stays. Returns what went."""
    here = Path(path)
    oldest = at.astimezone(UTC) - timedelta(days=days)
    gone = []
    for closed_log in sorted(here.parent.glob(f"{escape(here.name)}.*Z")):
        closed = _parse_closing_time(here, closed_log)
        if closed is not None and closed < oldest:
            closed_log.unlink()
            gone.append(closed_log)
    return tuple(gone)


def _get_chain_end(file: int, path: Path) -> HashChain:
    """What goes on behind the file's last line. Raises ConfigError where that has no end."""
    tail = read_tail(file, os.fstat(file).st_size)
    if tail.torn:
        raise make_torn_error(path, len(tail.torn))
    return HashChain.continue_from(tail.line)


def _remove_leftovers(file: int, here: Path, fresh: Path) -> None:
    """Take away what a rotation that was killed has left: a new file, and a second name of the log."""
    fresh.unlink(missing_ok=True)
    for closed_log in here.parent.glob(f"{escape(here.name)}.*Z"):
        if _parse_closing_time(here, closed_log) is not None and is_current_file(file, closed_log):
            closed_log.unlink()


def _create_log(fresh: Path, line: bytes) -> None:
    """The new file with its first line, on the disk."""
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    try:
        write_line(file, line)
        os.fsync(file)
    finally:
        os.close(file)


def _link_log(here: Path, kept: Path) -> None:
    try:
        os.link(here, kept, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise ConfigError(
            f"{here}: it cannot be given a second name ({error.strerror})",
            code="audit.unusable",
            hint="rotation needs a filesystem with hard links, and a file that is not append-only",
        ) from None


def _replace_log(fresh: Path, here: Path, kept: Path) -> None:
    """The new file takes the name of the log, whose other name is on the disk before."""
    try:
        _sync_folder(here.parent)
        fresh.rename(here)
    except BaseException:
        kept.unlink(missing_ok=True)
        raise
    _sync_folder(here.parent)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _parse_closing_time(here: Path, kept: Path) -> datetime | None:
    """When a file of this name was closed; None for one that is not ours."""
    try:
        return datetime.strptime(kept.name.removeprefix(f"{here.name}."), _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None
