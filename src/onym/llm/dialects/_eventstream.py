"""Frames of `application/vnd.amazon.eventstream`: a push decoder that trusts no length unseen.

A message is a prelude (length of all, length of the headers, CRC of both), headers, a payload and the CRC of
all that came before; numbers are big-endian.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NoReturn, TypeAlias
from zlib import crc32

from onym.errors import ProtocolError, ResponseTooLarge

__all__ = ["EventFrame", "EventStreamFrames", "HeaderValue"]

HeaderValue: TypeAlias = bool | int | bytes | str

_PRELUDE: Final = Struct(">III")
_CRC: Final = Struct(">I")
_OVERHEAD: Final = _PRELUDE.size + _CRC.size
_LARGEST_MESSAGE: Final = 16 * 1024 * 1024
_LARGEST_HEADERS: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class EventFrame:
    """One message. `headers` are typed as they came; a timestamp is milliseconds, a UUID 16 octets."""

    headers: Mapping[str, HeaderValue]
    payload: bytes = field(repr=False)

    def text(self, name: str) -> str:
        """A header that is text, "" where there is none of that name."""
        value = self.headers.get(name)
        return value if isinstance(value, str) else ""


class EventStreamFrames:
    """Octets to messages. A message that the end of the octets cuts short is none."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[EventFrame]:
        """The messages that these octets complete.

        Raises ProtocolError where a checksum, a length or a header is wrong, ResponseTooLarge for a
        message beyond 16 MiB or headers beyond 128 KiB.
        """
        pending = self._pending
        pending += data
        start = 0
        try:
            while (size := _size(pending, start)) is not None and len(pending) - start >= size:
                message = bytes(pending[start : start + size])
                start += size
                yield _frame(message)
        finally:
            # once for all of them: to cut the front off for each message would copy the rest each time
            del pending[:start]

    def close(self) -> Iterator[EventFrame]:
        """Nothing: what is left is not a whole message."""
        self._pending.clear()
        return iter(())


def _size(pending: bytearray, start: int) -> int | None:
    """How long the message that begins there is, None as long as its prelude is not whole."""
    if len(pending) - start < _PRELUDE.size:
        return None
    total, headers, check = _PRELUDE.unpack_from(pending, start)
    if crc32(pending[start : start + 8]) != check:
        _refuse("a prelude's checksum is wrong")
    if total > _LARGEST_MESSAGE or headers > _LARGEST_HEADERS:
        raise ResponseTooLarge(
            f"one message of the stream is longer than {_LARGEST_MESSAGE} octets, or its headers than "
            f"{_LARGEST_HEADERS}",
            code="net.too-large.event",
        )
    if total < _OVERHEAD + headers:
        _refuse("a message is shorter than its headers")
    return int(total)


def _frame(message: bytes) -> EventFrame:
    end = len(message) - _CRC.size
    if crc32(memoryview(message)[:end]) != _CRC.unpack_from(message, end)[0]:
        _refuse("a message's checksum is wrong")
    after = _PRELUDE.size + _PRELUDE.unpack_from(message)[1]
    return EventFrame(_headers(message[_PRELUDE.size : after]), message[after:end])


def _headers(data: bytes) -> dict[str, HeaderValue]:
    found: dict[str, HeaderValue] = {}
    at = 0
    while at < len(data):
        octets, at = _take(data, at + 1, data[at])
        name = _text(octets)
        kind, at = _take(data, at, 1)
        if name in found or kind[0] >= len(_READERS):
            _refuse("a header comes twice or is of no known type")
        found[name], at = _READERS[kind[0]](data, at)
    return found


def _take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(data):
        _refuse("a header runs beyond its message")
    return data[at : at + size], at + size


def _text(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        _refuse("a header is not UTF-8")


_Reader: TypeAlias = Callable[[bytes, int], tuple[HeaderValue, int]]


def _constant(value: bool) -> _Reader:
    return lambda _, at: (value, at)


def _whole(size: int) -> _Reader:
    def read(data: bytes, at: int) -> tuple[int, int]:
        octets, at = _take(data, at, size)
        return int.from_bytes(octets, signed=True), at

    return read


def _octets(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _take(data, at, 2)
    return _take(data, at, int.from_bytes(length))


def _string(data: bytes, at: int) -> tuple[str, int]:
    octets, at = _octets(data, at)
    return _text(octets), at


def _uuid(data: bytes, at: int) -> tuple[bytes, int]:
    return _take(data, at, 16)


#: by the number of the type: true, false, byte, short, integer, long, octets, text, timestamp, UUID
_READERS: Final[tuple[_Reader, ...]] = (
    _constant(True),
    _constant(False),
    _whole(1),
    _whole(2),
    _whole(4),
    _whole(8),
    _octets,
    _string,
    _whole(8),
    _uuid,
)


def _refuse(why: str) -> NoReturn:
    raise ProtocolError(f"the event stream is broken: {why}", code="net.protocol.eventstream")
