"""Writes AWS event streams, as Bedrock sends them."""

from __future__ import annotations

import json
from struct import pack
from typing import Any
from zlib import crc32

__all__ = ["event", "exception", "header", "message"]


def header(name: str, kind: int, value: Any) -> bytes:
    """One header, by the number of its type."""
    head = bytes([len(name.encode())]) + name.encode() + bytes([kind])
    sizes = {2: ">b", 3: ">h", 4: ">i", 5: ">q", 8: ">q"}
    if kind in sizes:
        return head + pack(sizes[kind], value)
    if kind in (6, 7):
        octets = value.encode() if isinstance(value, str) else value
        return head + pack(">H", len(octets)) + octets
    return head + (value if kind == 9 else b"")


def message(headers: bytes = b"", payload: bytes = b"") -> bytes:
    prelude = pack(">II", 16 + len(headers) + len(payload), len(headers))
    prelude += pack(">I", crc32(prelude))
    whole = prelude + headers + payload
    return whole + pack(">I", crc32(whole))


def event(kind: str, data: Any) -> bytes:
    """One event of a stream: bytes as they are, anything else as JSON."""
    return _typed("event", "event-type", kind, data)


def exception(kind: str, data: Any) -> bytes:
    """The exception that ends a stream."""
    return _typed("exception", "exception-type", kind, data)


def _typed(message_type: str, name: str, kind: str, data: Any) -> bytes:
    texts = {f":{name}": kind, ":content-type": "application/json", ":message-type": message_type}
    headers = b"".join(header(text, 7, value) for text, value in texts.items())
    return message(headers, data if isinstance(data, bytes) else json.dumps(data).encode())
