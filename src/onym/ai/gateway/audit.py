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
#: octets of a line, its end included
LONGEST_LINE: Final = 4 * 1024
_HASH: Final = 64
#: streams without an end that are kept in mind
_MOST_BEGUN: Final = 10_000


@dataclass(frozen=True, slots=True)
class Fault:
    """What does not hold: the line's number from 1, and a sentence."""

    line: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What a log says of itself: its lines, the first and last hash, the times, and what does not hold.

    `torn` are the octets of a last line without an end: a process that was killed while it wrote. `begun` are
    the ids of streams that began and have no second line: they run, or the process was killed meanwhile. It
    is no fault; of very many the first are named.
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
        """Is every line as it was written, and none gone from the middle?"""
        return not self.faults and not self.torn


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a log: the last whole line (b"" in an empty one), and what stands behind it."""

    line: bytes
    torn: bytes


class HashChain:
    """Makes lines, each tied to the one before: `previous` is its hash, `number` its number."""

    __slots__ = ("number", "previous")

    def __init__(self, previous: str = START, number: int = 0) -> None:
        self.previous = previous
        self.number = number

    @classmethod
    def continue_from(cls, line: bytes) -> HashChain:
        """A chain that goes on behind this line. Raises ConfigError where it is none."""
        if not line:
            return cls()
        found = _parse_line(line)
        if found is None:
            raise ConfigError(
                "the audit log's last line is not one of its lines",
                code="audit.malformed",
                hint="look with: onym ai audit verify FILE",
            )
        return cls(hash_line(line), found["n"])

    def encode_next(self, members: dict[str, Any]) -> bytes:
        """The next line; `keep` makes it the last."""
        return encode_line({"n": self.number + 1, "prev": self.previous, **members})

    def advance(self, line: bytes) -> None:
        """The line was written."""
        self.previous = hash_line(line)
        self.number += 1


def encode_line(members: dict[str, Any]) -> bytes:
    """One line with its end, members without a value left out. It is never longer than `LONGEST_LINE`."""
    line = msgspec.json.encode({name: value for name, value in members.items() if value is not None}) + b"\n"
    if len(line) > LONGEST_LINE:
        raise ValueError("an audit line is too long")
    return line


def hash_line(line: bytes) -> str:
    """The SHA-256 of a line without its end, in hexadecimal."""
    return hashlib.sha256(line.removesuffix(b"\n")).hexdigest()


def split_tail(octets: bytes) -> Tail:
    """The last whole line of these octets, and what stands behind it without an end."""
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
    """Follow the chain. `previous` is the hash that the first line must continue, where one is known.

    `begun` are the streams that the file before says to have begun.
    A log that was rotated begins with the hash of the file before, which is taken as it stands.
    """
    faults: list[Fault] = []
    count, begins, expected, number, torn = 0, "", previous, None, 0
    times: list[str] = []
    streams = set(begun)
    for count, line in enumerate(lines, start=1):
        if not line.endswith(b"\n") and len(line) <= LONGEST_LINE:
            torn, count = len(line), count - 1
            break
        found = _parse_line(line)
        if found is None:
            faults.append(Fault(count, "this is not a line of an audit log"))
        else:
            begins = begins or found["prev"]
            faults += [Fault(count, why) for why in _find_faults(found, expected, number)]
            number = found["n"]
            _track_streams(streams, found)
            times = [times[0] if times else found["at"], found["at"]]
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


def _track_streams(streams: set[str], found: dict[str, Any]) -> None:
    """Keep in mind which streams have begun; a stranger's log names no more than there is room for."""
    event, name = found.get("event"), found.get("id")
    if event == "begun" and isinstance(name, str) and len(streams) < _MOST_BEGUN:
        streams.add(name)
    elif event == "exchange" and isinstance(name, str):
        streams.discard(name)


def _find_faults(found: dict[str, Any], expected: str | None, number: int | None) -> Iterator[str]:
    if expected is not None and found["prev"] != expected:
        yield "its hash of the line before is another: that line was changed, or lines are missing"
    first = (found["n"], found["prev"]) == (1, START) or found.get("event") == "rotated"
    if expected is None and not first:
        yield "the log begins in the middle"
    if number is not None and found["n"] != number + 1:
        yield f"its number is {found['n']}, and {number + 1} comes next"


def _parse_line(line: bytes) -> dict[str, Any] | None:
    """The members of a line; None for what is no line, by its form alone."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    number, previous, at = found.get("n"), found.get("prev"), found.get("at")
    good = (
        isinstance(number, int)
        and not isinstance(number, bool)
        and isinstance(previous, str)
        and len(previous) == _HASH
        and isinstance(at, str)
    )
    return found if good else None
