"""The audit log: JSON lines in a hash chain, so that no line can be changed or removed from the middle.

A line contains who answered, what was decided and which receipt came. It contains no body, query or client
address, and paths only as a keyed hash. The end of a log can still be cut off: keep the last hash
elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from onym.errors import ConfigError

#: `prev` of a log's first line
START: Final = "0" * 64
#: bytes of a line, including its end
LONGEST_LINE: Final = 4 * 1024
_HASH: Final = 64
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


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log: the last whole line (b"" in an empty log) and the incomplete line after it."""

    line: bytes
    torn: bytes


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
        return cls(hash_line(line), members["n"])

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


def split_tail(octets: bytes) -> Tail:
    """Return the last whole line of these bytes, and the incomplete line after it."""
    whole, end, torn = octets.rpartition(b"\n")
    if not end:
        return Tail(b"", octets)
    return Tail(whole.rpartition(b"\n")[2] + b"\n", torn)


def verify_lines(
    lines: Iterable[bytes],
    *,
    previous: str | None = None,
    begun: Collection[str] = (),
    most_faults: int = 20,
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
            begins = begins or members["prev"]
            faults += [Fault(count, why) for why in _find_faults(members, expected, number)]
            number = members["n"]
            _track_streams(streams, members)
            times = [times[0] if times else members["at"], members["at"]]
        expected = hash_line(line)
        if len(faults) >= most_faults:
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
        faults=tuple(faults[:most_faults]),
    )


def _track_streams(streams: set[str], members: dict[str, Any]) -> None:
    """Update the set of unfinished streams, within a limit, because the log may be untrusted."""
    event, name = members.get("event"), members.get("id")
    if event == "begun" and isinstance(name, str) and len(streams) < _MOST_BEGUN:
        streams.add(name)
    elif event == "exchange" and isinstance(name, str):
        streams.discard(name)


def _find_faults(members: dict[str, Any], expected: str | None, number: int | None) -> Iterator[str]:
    if expected is not None and members["prev"] != expected:
        yield "its hash of the previous line does not match: that line was changed, or lines are missing"
    first = (members["n"], members["prev"]) == (1, START) or members.get("event") == "rotated"
    if expected is None and not first:
        yield "the log does not begin with the first line"
    if number is not None and members["n"] != number + 1:
        yield f"its number is {members['n']} instead of {number + 1}"


def _parse_line(line: bytes) -> dict[str, Any] | None:
    """Return the members of a line, or None if it does not have the form of a line."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        members = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(members, dict):
        return None
    number, previous, at = members.get("n"), members.get("prev"), members.get("at")
    is_valid = (
        isinstance(number, int)
        and not isinstance(number, bool)
        and isinstance(previous, str)
        and len(previous) == _HASH
        and isinstance(at, str)
    )
    return members if is_valid else None
