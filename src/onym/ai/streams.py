"""A signed stream of events: provisional until its last event, the receipt, holds (3.8, streams)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onym.ai._problem import PROBLEM, problem_of
from onym.errors import AIIPError, ProvenanceError, ResponseTooLarge, SignatureError
from onym.net.sse import SSEDecoder, SSEEvent
from onym.sign.chain import StreamChain

if TYPE_CHECKING:
    from collections.abc import Callable

    from onym.ai.exchange import Question
    from onym.sign.keys import AuthorityKeys
    from onym.sign.receipt import Receipt

__all__ = ["MAX_EVENT", "MAX_EVENTS", "PROBLEM_EVENT", "RECEIPT_EVENT", "StreamReader"]

#: the type of a stream's last event; its data is the receipt in its compact form
RECEIPT_EVENT: Final = "receipt"
#: the type of the last event of a stream that failed; its data is a problem document, which nobody signed
PROBLEM_EVENT: Final = "problem"
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
        self._problem: str | None = None
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
        # the last event of all: one that others follow is an event like them
        self._problem = event.data if event.event == PROBLEM_EVENT else None
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

        Raises ProvenanceError; InvocationError where the endpoint says, unsigned, why there is no receipt;
        SignatureError `sign.unknown-key` where `keys` may be too old.
        """
        if self._token is None:
            raise self._failure()
        return self._question.verify(
            self._token,
            keys,
            at,
            seen,
            status=self._status,
            content_type=self._content_type,
            stream=self._chain.end,
        )

    def _failure(self) -> AIIPError:
        """Why a stream without a receipt failed: as its problem says, else because it has none."""
        target = self._question.target
        if self._problem is not None:
            return problem_of(None, PROBLEM, self._problem.encode(), target, signed=False)
        return ProvenanceError(
            "the stream ended without a receipt: nothing of it counts",
            code="aiip.provenance-missing",
            target=target,
            clause=_CLAUSE,
        )
