"""The audit log: JSON lines in a hash chain, so that no line can be changed or removed from the middle.

A line contains who answered, what was decided and which receipt came. It contains no body, query or client
address, and paths only as a keyed hash. The end of a log can still be cut off: keep the last hash elsewhere.
`AuditLog` appends under a lock; other functions verify, repair and rotate the file.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from glob import escape
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from onym.common import platform
from onym.common.files import replace_file, unlock, wait_for_lock
from onym.errors import ConfigError

#: `prev` of a log's first line
START: Final = "0" * 64
#: bytes of a line, including its end
LONGEST_LINE: Final = 4 * 1024
_HASH: Final = 64
#: faults that are listed
_MOST_FAULTS: Final = 20
#: unfinished streams that are remembered
_MOST_BEGUN: Final = 10_000


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in a log: the line's number from 1, and a sentence."""

    line: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The result of a verification: the number of lines, the first and last hash, the times and the faults.

    `torn` is the size in bytes of an incomplete last line; a process was killed while writing. `begun`
    contains the IDs of streams that have begun and not ended: they still run, or the process was killed. They
    are not faults. At most 10,000 are listed.
    """

    lines: int
    begins: str
    ends: str
    first: str | None = None
    last: str | None = None
    torn: int = 0
    begun: frozenset[str] = frozenset()
    faults: tuple[Fault, ...] = ()

    @property
    def is_valid(self) -> bool:
        """True if every line is unchanged and none is missing from the middle."""
        return not self.faults and not self.torn


class HashChain:
    """Creates linked lines: `previous` is the hash of the last line, `number` its number."""

    __slots__ = ("number", "previous")

    def __init__(self, previous: str = START, number: int = 0) -> None:
        self.previous = previous
        self.number = number

    @classmethod
    def continue_from(cls, line: bytes) -> HashChain:
        """Return a chain that continues after this line. Raises ConfigError if it is not a line."""
        if not line:
            return cls()
        members = _parse_line(line)
        if members is None:
            raise ConfigError(
                "the last line of the audit log is not a valid line",
                code="audit.malformed",
                hint="Run: onym ai audit verify FILE",
            )
        return cls(hash_line(line), members.n)

    def encode_next(self, members: dict[str, Any]) -> bytes:
        """Return the next line; `advance` makes it the last one."""
        return encode_line({"n": self.number + 1, "prev": self.previous, **members})

    def advance(self, line: bytes) -> None:
        """Make a line that was written the last one."""
        self.previous = hash_line(line)
        self.number += 1


def encode_line(members: dict[str, Any]) -> bytes:
    """Encode one line, without members that are None. Raises ValueError above `LONGEST_LINE`."""
    line = msgspec.json.encode({name: value for name, value in members.items() if value is not None}) + b"\n"
    if len(line) > LONGEST_LINE:
        raise ValueError(f"an audit line is longer than {LONGEST_LINE} bytes")
    return line


def hash_line(line: bytes) -> str:
    """Return the SHA-256 of a line without its end, in hexadecimal."""
    return hashlib.sha256(line.removesuffix(b"\n")).hexdigest()


def split_tail(octets: bytes) -> tuple[bytes, bytes]:
    """Return the last whole line of these bytes (b"" if there is none), and the incomplete line after it."""
    whole, end, torn = octets.rpartition(b"\n")
    return whole.rpartition(b"\n")[2] + end, torn


def verify_lines(
    lines: Iterable[bytes], *, previous: str | None = None, begun: Collection[str] = ()
) -> AuditReport:
    """Verify the hash chain. `previous` is the hash that the first line must continue, if it is known.

    `begun` are the unfinished streams of the previous file. Without `previous`, the hash at the beginning of
    a rotated log is not verified.
    """
    faults: list[Fault] = []
    count, begins, expected, number, torn = 0, "", previous, None, 0
    times: list[str] = []
    streams = set(begun)
    for count, line in enumerate(lines, start=1):
        if not line.endswith(b"\n") and len(line) <= LONGEST_LINE:
            torn, count = len(line), count - 1
            break
        members = _parse_line(line)
        if members is None:
            faults.append(Fault(count, "it is not a line of an audit log"))
        else:
            begins = begins or members.prev
            faults += [Fault(count, why) for why in _find_faults(members, expected, number)]
            number = members.n
            # within a limit, because the log may be untrusted
            if isinstance(members.id, str) and members.event == "begun" and len(streams) < _MOST_BEGUN:
                streams.add(members.id)
            elif isinstance(members.id, str) and members.event == "exchange":
                streams.discard(members.id)
            times = [times[0] if times else members.at, members.at]
        expected = hash_line(line)
        if len(faults) >= _MOST_FAULTS:
            break
    first, last = times or (None, None)
    return AuditReport(
        lines=count,
        begins=begins or previous or START,
        ends=(expected if count else previous) or START,
        first=first,
        last=last,
        torn=torn,
        begun=frozenset(streams),
        faults=tuple(faults[:_MOST_FAULTS]),
    )


def _find_faults(line: _Line, expected: str | None, number: int | None) -> Iterator[str]:
    if expected is not None and line.prev != expected:
        yield "its hash of the previous line does not match: that line was changed, or lines are missing"
    first = (line.n, line.prev) == (1, START) or line.event == "rotated"
    if expected is None and not first:
        yield "the log does not begin with the first line"
    if number is not None and line.n != number + 1:
        yield f"its number is {line.n} instead of {number + 1}"


class _Line(msgspec.Struct):
    """The members of a line that the chain needs. `event` and `id` may be anything in an untrusted log."""

    n: int
    prev: Annotated[str, msgspec.Meta(min_length=_HASH, max_length=_HASH)]
    at: str
    event: Any = None
    id: Any = None


_LINES: Final = msgspec.json.Decoder(_Line)


def _parse_line(line: bytes) -> _Line | None:
    """Return the members of a line, or None if it does not have the form of a line."""
    with suppress(msgspec.DecodeError, RecursionError):
        return _LINES.decode(line) if len(line) <= LONGEST_LINE else None
    return None


#: only the owner may read the files
MODE: Final = 0o600
_APPEND: Final = os.O_RDWR | os.O_APPEND | platform.CLOSE_ON_EXEC | platform.NO_FOLLOW | platform.BINARY


def open_log(path: Path, *, create: bool = True) -> int:
    """Open the file for appending. Raises ConfigError, also for a file that other users may write to."""
    try:
        file = os.open(path, _APPEND | (os.O_CREAT if create else 0), MODE)
    except OSError as error:
        raise make_unusable_error(path, error) from None
    if platform.is_writable_by_others(os.fstat(file)):
        os.close(file)
        raise ConfigError(
            f"{path}: other users may write to the audit log",
            code="audit.unusable",
            hint=f"Run: chmod go-w {path}",
        )
    return file


@contextmanager
def lock_log(path: Path) -> Iterator[int]:
    """Open and lock the current file. Raises ConfigError, also for an OSError in the block."""
    while True:
        file = open_log(path, create=False)
        try:
            wait_for_lock(file)
            if is_current_file(file, path):
                yield file
                return
        except OSError as error:
            raise make_unusable_error(path, error) from None
        finally:
            os.close(file)


def is_current_file(file: int, path: Path) -> bool:
    """Report whether the open file still has this name; a rotation gives it another."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(file), named)


def read_tail(file: int, size: int) -> tuple[HashChain, bytes]:
    """Return the chain after the last whole line, and the incomplete line after it. Raises ConfigError."""
    most = 2 * LONGEST_LINE
    os.lseek(file, max(0, size - most), os.SEEK_SET)  # writes append, wherever the position is
    line, torn = split_tail(os.read(file, most))
    if not line and size > most:
        raise ConfigError("the last line of the audit log is too long", code="audit.malformed")
    return HashChain.continue_from(line), torn


def read_chain(file: int, size: int, path: Path) -> HashChain:
    """Return the chain after the last line. Raises ConfigError, also if that line is incomplete."""
    chain, torn = read_tail(file, size)
    if torn:
        raise ConfigError(
            f"{path}: the last line is incomplete ({len(torn)} bytes), because a process was killed while "
            "writing",
            code="audit.torn",
            hint=f"Look at the line, then run: onym ai audit repair {path}",
        )
    return chain


def write_line(file: int, line: bytes) -> None:
    """Write the whole line. Raises OSError."""
    if os.write(file, line) != len(line):
        raise OSError(errno.EIO, "the line was written only in part")


def format_timestamp(at: datetime) -> str:
    """Format the time of a line: UTC, with milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def make_unusable_error(path: Path, error: OSError) -> ConfigError:
    """Return the error of a file that the operating system rejects."""
    return ConfigError(
        f"{path}: the audit log cannot be used: {error.strerror or type(error).__name__}",
        code="audit.missing" if isinstance(error, FileNotFoundError) else "audit.unusable",
    )


class AuditLog:
    """An open audit log. Raises ConfigError if it cannot be opened or its last line is incomplete.

    Several processes may append to one file: each takes the lock and continues after the last line.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = -1
        self._size = 0
        self._chain = HashChain()
        with self._lock_file():
            pass

    def append(self, members: dict[str, Any], *, at: datetime) -> str:
        """Write one line and return its hash. Raises OSError if it cannot be written completely."""
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
        """Close the file. It is safe to call this more than once."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @contextmanager
    def _lock_file(self) -> Iterator[None]:
        """Lock the current file and read its end if another process has written."""
        while True:
            if self._file < 0:
                self._file = open_log(self.path)
                self._size = -1
            wait_for_lock(self._file)
            if is_current_file(self._file, self.path):
                break
            self.close()  # after a rotation the name belongs to another file
        try:
            size = os.fstat(self._file).st_size
            if size != self._size:
                self._chain = read_chain(self._file, size, self.path)
                self._size = size
            yield
        finally:
            unlock(self._file)


def repair_log(path: str | Path, *, at: datetime) -> int:
    """Replace an incomplete last line with a line that records the repair. Returns the bytes removed."""
    here = Path(path)
    with lock_log(here) as file:
        size = os.fstat(file).st_size
        chain, torn = read_tail(file, size)
        if torn:
            note = {"event": "mended", "octets": len(torn), "was": hash_line(torn)}
            line = chain.encode_next({"at": format_timestamp(at), **note})
            os.ftruncate(file, size - len(torn))
            write_line(file, line)
            platform.sync_file(file)
        return len(torn)


def verify_log(path: str | Path, *, previous: str | None = None, begun: Collection[str] = ()) -> AuditReport:
    """Verify the file; see `verify_lines`. Raises ConfigError if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            # limit the length, because a line may have no end
            lines = iter(lambda: file.readline(LONGEST_LINE + 2), b"")
            return verify_lines(lines, previous=previous, begun=begun)
    except OSError as error:
        raise make_unusable_error(Path(path), error) from None


_STAMP: Final = "%Y%m%dT%H%M%S%fZ"
#: the errors of a filesystem without hard links
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def rotate_log(path: str | Path, *, at: datetime) -> Path:
    """Rename the log and create a new one that continues its hash chain. Returns the new name of the old log.

    A running gateway continues in the new file. The log's name exists at every moment: if the process is
    killed, it is the old or the new file, and the next rotation removes leftovers. Raises ConfigError; needs
    a filesystem with hard links.
    """
    here = Path(path)
    with lock_log(here) as file:
        chain = read_chain(file, os.fstat(file).st_size, here)
        kept = here.with_name(f"{here.name}.{at.astimezone(UTC).strftime(_STAMP)}")
        note = {"at": format_timestamp(at), "event": "rotated", "from": kept.name}
        _remove_leftovers(file, here)
        try:
            with replace_file(here, mode=MODE) as stream:
                stream.write(chain.encode_next(note))
                _link_log(here, kept)
                platform.sync_folder(
                    here.parent
                )  # the log's second name is on the disk before the first is replaced
        except BaseException:
            if is_current_file(file, here) and is_current_file(file, kept):
                kept.unlink()
            raise
        return kept


def remove_old_logs(path: str | Path, *, days: float, at: datetime) -> tuple[Path, ...]:
    """Remove rotated files that were closed more than `days` ago, and return them. The current log stays."""
    here = Path(path)
    oldest = at.astimezone(UTC) - timedelta(days=days)
    removed = []
    for closed, closed_log in _list_rotated_logs(here):
        if closed < oldest:
            closed_log.unlink()
            removed.append(closed_log)
    return tuple(removed)


def _list_rotated_logs(here: Path) -> Iterator[tuple[datetime, Path]]:
    """Yield the rotated files with the time when each was closed."""
    for path in sorted(here.parent.glob(f"{escape(here.name)}.*Z")):
        with suppress(ValueError):
            stamp = path.name.removeprefix(f"{here.name}.")
            yield datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC), path


def _remove_leftovers(file: int, here: Path) -> None:
    """Remove the leftovers of a killed rotation: a new file, and a second name of the log."""
    for part in here.parent.glob(f".{escape(here.name)}.*.part"):
        part.unlink(missing_ok=True)
    for _, path in _list_rotated_logs(here):
        if is_current_file(file, path):
            path.unlink()


def _link_log(here: Path, kept: Path) -> None:
    try:
        os.link(here, kept, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise ConfigError(
            f"{here}: the audit log cannot be rotated: {error.strerror}",
            code="audit.unusable",
            hint="Rotation needs a filesystem with hard links, and a file that is not append-only.",
        ) from None
