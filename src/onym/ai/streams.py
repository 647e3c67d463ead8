"""A signed stream of events: provisional until its last event, the receipt, holds (3.8, streams)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onym.errors import ProvenanceError, ResponseTooLarge, SignatureError
from onym.net.sse import SSEDecoder, SSEEvent
from onym.sign.chain import StreamChain

if TYPE_CHECKING:
    from collections.abc import Callable

    from onym.ai.exchange import Question
    from onym.sign.keys import AuthorityKeys
    from onym.sign.receipt import Receipt

__all__ = ["MAX_EVENT", "MAX_EVENTS", "RECEIPT_EVENT", "StreamReader"]

#: the type of a stream's last event; its data is the receipt in its compact form
RECEIPT_EVENT: Final = "receipt"
#: characters of one event
MAX_EVENT: Final = 1024 * 1024
#: events of one stream; each costs two hashes, and a body of some megabytes can hold a million
MAX_EVENTS: Final = 100_000
_CLAUSE: Final = "AIIP/HTTPS v1 3.8, streams"


class StreamReader:
    """Octets in, provisional events out; `end` gives the receipt of the whole, or raises ProvenanceError."""

    def __init__(self, question: Question, status: int, content_type: str | None) -> None:
        self._question = question
        self._status = status
        self._content_type = content_type
        self._decoder = SSEDecoder(MAX_EVENT)
        self._chain = StreamChain(question.request_hash)
        self._token: str | None = None
        self._count = 0

    @property
    def token(self) -> str | None:
        """The receipt in its compact form, once it is there."""
        return self._token

    def feed(self, data: bytes) -> list[SSEEvent]:
        """The events that these octets complete. Raises ProvenanceError, ProtocolError, ResponseTooLarge."""
        return [event for event in self._decoder.events(data) if self._take(event)]

    def _take(self, event: SSEEvent) -> bool:
        if self._token is not None:
            raise ProvenanceError(
                "the stream goes on behind its receipt", target=self._question.target, clause=_CLAUSE
            )
        if event.event == RECEIPT_EVENT:
            self._token = event.data
            return False
        try:
            self._chain.add(event.id, event.event, event.data)
        except SignatureError as error:
            raise ProvenanceError(error.message, target=self._question.target, clause=_CLAUSE) from error
        self._count += 1
        if self._count > MAX_EVENTS:
            raise ResponseTooLarge(
                f"the stream has more than {MAX_EVENTS} events",
                code="net.too-large.event",
                endpoint=self._question.target,
            )
        return True

    def end(self, keys: AuthorityKeys, at: float, seen: Callable[[str, float], bool]) -> Receipt:
        """The receipt of the stream, once the stream has ended.

        Raises ProvenanceError, and SignatureError `sign.unknown-key` where `keys` may be too old.
        """
        if self._token is None:
            raise ProvenanceError(
                "the stream ended without a receipt: nothing of it counts",
                code="aiip.provenance-missing",
                target=self._question.target,
                clause=_CLAUSE,
            )
        return self._question.verify(
            self._token,
            keys,
            at,
            seen,
            status=self._status,
            content_type=self._content_type,
            stream=self._chain.end,
        )
