"""Content codings undone piece by piece, never beyond a cap: a small body cannot become a huge one."""

from __future__ import annotations

import zlib
from typing import Final

from onym.errors import ProtocolError, ResponseTooLarge
from onym.net._http1 import Head, tokens

__all__ = ["Decoder", "too_large"]

_GZIP: Final = 31  # a window of 32 KiB, gzip header
_ZLIB: Final = 15
_RAW: Final = -15
_PIECE: Final = 256 * 1024


def too_large(cap: int) -> ResponseTooLarge:
    """The error for a body beyond its cap."""
    return ResponseTooLarge(f"the answer is larger than {cap} octets", code="net.too-large.body")


class Decoder:
    """Undoes the coding that a head names, and counts: beyond `cap` octets it raises ResponseTooLarge.

    The cap holds for the octets that come in too: empty pieces without end would keep it busy. With
    `cut=True` what is beyond the cap is dropped instead, and `full` is set.
    """

    __slots__ = ("_cap", "_coding", "_cut", "_inflater", "_left", "_wire_left", "full")

    def __init__(self, head: Head, cap: int, *, cut: bool = False) -> None:
        told = head.values("content-encoding")
        codings = [each for each in tokens(told) if each not in ("identity", "")] if told else []
        if len(codings) > 1 or (codings and codings[0] not in ("gzip", "x-gzip", "deflate")):
            raise ProtocolError(
                "the answer is coded in a way that was not asked for", code="net.protocol.coding"
            )
        self._coding = codings[0] if codings else None
        self._inflater: zlib._Decompress | None = None
        self._cap = self._left = self._wire_left = cap
        self._cut = cut
        self.full = False

    def feed(self, data: bytes) -> bytes:
        """The content's octets among these octets of the body."""
        if self._coding is None:
            return self._count(data)
        self._wire_left -= len(data)
        if self._wire_left < 0:
            self._overflow()
        parts: list[bytes] = []
        try:
            while data and not self.full:
                inflater = self._inflater = self._inflater or zlib.decompressobj(self._window(data))
                # one octet more than is left, so that going beyond shows
                parts.append(self._count(inflater.decompress(data, min(_PIECE, self._left + 1))))
                data = inflater.unconsumed_tail
                if inflater.eof:
                    data = inflater.unused_data
                    self._inflater = None
        except zlib.error:
            raise self._broken() from None
        return b"".join(parts)

    def end(self) -> None:
        """The body is whole; raises ProtocolError where the coded data is not."""
        if self._inflater is not None and not self.full:
            raise self._broken()

    def _window(self, data: bytes) -> int:
        if self._coding != "deflate":
            return _GZIP
        # some servers send deflate without the zlib header that RFC 9110 8.4.1.2 asks for
        return _ZLIB if data[0] & 0x8F == 8 else _RAW

    def _count(self, data: bytes) -> bytes:
        if len(data) > self._left:
            self._overflow()
            data = data[: self._left]
        self._left -= len(data)
        return data

    def _overflow(self) -> None:
        if not self._cut:
            raise too_large(self._cap)
        self.full = True

    @staticmethod
    def _broken() -> ProtocolError:
        return ProtocolError("the answer's compressed data is broken", code="net.protocol.coding")
