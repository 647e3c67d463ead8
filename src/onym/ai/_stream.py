"""Streams as people see them: provisional events, then a result that was verified. Sync and async."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Self, cast

from onym.ai.flow import Opened, settle
from onym.ai.records import Result
from onym.errors import ProvenanceError, ResponseTooLarge
from onym.net.transport import AsyncTransport, Transport, arun, run

if TYPE_CHECKING:
    from types import TracebackType

    from onym.ai.session import Session
    from onym.net.messages import AsyncStreamBody, StreamBody
    from onym.net.sse import SSEEvent

__all__ = ["AIStream", "AsyncAIStream"]

#: octets of a body that is kept
_LONGEST_BODY = 64 * 1024 * 1024


class _Progress:
    """How far an answer has come; no I/O."""

    def __init__(self, opened: Opened, session: Session, keep: bool) -> None:
        self._opened = opened
        self._keep = keep or opened.reader is None
        self._session = session
        self._events: deque[SSEEvent] = deque()
        self._body: list[bytes] = []
        self._size = 0
        self._result = opened.result
        self._over = opened.result is not None

    @property
    def result(self) -> Result:
        """The result, once the stream has ended and its receipt holds. Raises ProvenanceError before."""
        if self._result is None:
            raise ProvenanceError(
                "the stream has not been read to its end: what came is provisional",
                code="aiip.provenance-missing",
                target=self._opened.question.target,
            )
        return self._result

    def _feed(self, data: bytes) -> None:
        if self._opened.reader is not None:
            self._events.extend(self._opened.reader.feed(data))
        if not self._keep:
            return
        self._size += len(data)
        if self._size > _LONGEST_BODY:
            raise ResponseTooLarge("the body is too large", endpoint=self._opened.question.target)
        self._body.append(data)

    def _ended(self, error: BaseException | None = None) -> None:
        """Tell whoever observes the call; without an error it is good, or left before its end."""
        call = self._opened.call
        if call is None:
            return
        if error is None and self._result is None:
            call.left()
        else:
            call.end(error)

    def _whole(self) -> Opened:
        """What was opened, with the body that has come."""
        return replace(
            self._opened, reply=replace(self._opened.reply, body=b"".join(self._body), stream=None)
        )


class AIStream(_Progress):
    """The events of an answer, provisional until `result` is there. Use it in a `with` statement.

    With `keep`, the octets of the stream are the result's body, to be filed with its receipt.
    """

    def __init__(self, opened: Opened, session: Session, transport: Transport, *, keep: bool = False) -> None:
        super().__init__(opened, session, keep)
        self._transport = transport
        self._stream = cast("StreamBody | None", opened.reply.stream)

    def __iter__(self) -> Iterator[SSEEvent]:
        """Every event but the receipt; raises ProvenanceError at the end of a stream that does not hold."""
        try:
            while not self._over:
                data = self._stream.read() if self._stream else b""
                if data:
                    self._feed(data)
                else:
                    self._over = True
                    self._result = run(settle(self._whole(), self._session), self._transport)
                while self._events:
                    yield self._events.popleft()
        except BaseException as error:
            self._ended(error)
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Read no more of it."""
        self._over = True
        self._ended()
        if self._stream is not None:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncAIStream(_Progress):
    """`AIStream`, for coroutines."""

    def __init__(
        self, opened: Opened, session: Session, transport: AsyncTransport, *, keep: bool = False
    ) -> None:
        super().__init__(opened, session, keep)
        self._transport = transport
        self._stream = cast("AsyncStreamBody | None", opened.reply.stream)

    async def __aiter__(self) -> AsyncIterator[SSEEvent]:
        """As `AIStream`."""
        try:
            while not self._over:
                data = await self._stream.aread() if self._stream else b""
                if data:
                    self._feed(data)
                else:
                    self._over = True
                    self._result = await arun(settle(self._whole(), self._session), self._transport)
                while self._events:
                    yield self._events.popleft()
        except BaseException as error:
            self._ended(error)
            raise
        finally:
            await self.close()

    async def close(self) -> None:
        """Read no more of it."""
        self._over = True
        self._ended()
        if self._stream is not None:
            await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
