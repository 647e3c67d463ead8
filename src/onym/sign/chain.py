"""The hash chain over a stream's events, which its receipt ends (AIIP/HTTPS v1, 3.8).

`c0 = SHA-256("aiip-stream-v1" LF rqh LF task)`, `ci = SHA-256(c(i-1) || SHA-256(id LF event LF data))`: an
event that is changed, moved, left out or added changes every value behind it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from onym.errors import SignatureError

__all__ = ["StreamChain", "StreamEnd"]

_LABEL: Final = b"aiip-stream-v1"
#: what no id or type of an event holds (WHATWG HTML 9.2.5); in data a CR would come out as LF
_BROKEN: Final = re.compile(r"[\r\n\0]").search


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """How many events a stream had before its receipt, and the chain's value there (as in Content-Digest)."""

    count: int
    digest: str


class StreamChain:
    """The chain of one stream: events in, in the order of the wire, as a reader of the stream decodes them.

    `request_hash` is the `rqh` of the request; `task` the id of the task, `-` for none.
    """

    __slots__ = ("_count", "_value")

    def __init__(self, request_hash: str, task: str = "-") -> None:
        self._count = 0
        self._value = sha256(b"\n".join((_LABEL, request_hash.encode(), task.encode()))).digest()

    def add(self, id: str, event: str, data: str) -> None:  # noqa: A002 - the field's name in the standard
        """One event. An empty type is `message`, as readers see it. Raises SignatureError.

        Fields that an event stream cannot carry unchanged are refused: they would verify on one side only.
        """
        if _BROKEN(id) or _BROKEN(event) or "\r" in data:
            raise SignatureError(
                "an event's id and type have no line ends, and its data no CR",
                code="sign.bad-event",
                hint="write line ends in data as LF",
            )
        try:
            octets = "\n".join((id, event or "message", data)).encode("utf-8")
        except UnicodeEncodeError:
            raise SignatureError("an event's text is not Unicode", code="sign.bad-event") from None
        self._value = sha256(self._value + sha256(octets).digest()).digest()
        self._count += 1

    @property
    def end(self) -> StreamEnd:
        """The chain up to here."""
        return StreamEnd(self._count, f"sha-256=:{b64encode(self._value).decode('ascii')}:")
