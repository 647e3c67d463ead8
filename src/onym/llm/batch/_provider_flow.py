"""How a provider's batch API is asked: flows of `Send` and `Wait`, without I/O and without a clock of theirs.

What only asks is tried again as any call is. Creating a batch is not: after a failure that leaves it open
whether there is one now, the provider's list is searched before anything is created again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, TypeVar

from onym.errors import (
    DeadlineExceeded,
    MalformedResponseError,
    NetError,
    NotFoundError,
    PolicyError,
    ProviderError,
    ResolveError,
)
from onym.llm._endpoint import Endpoint
from onym.llm.dialects import Exchange
from onym.llm.dialects._batch import Batch, BatchApi, BatchPage, Call, Fault
from onym.llm.flow import Clock
from onym.net.messages import Flow, HTTPRequest, Reply, Send, Wait
from onym.net.retry import RetryPolicy, parse_retry_after

__all__ = ["Desk", "Found", "ask", "create", "refused", "search", "watch"]

T = TypeVar("T")
Failure: TypeAlias = NetError | ProviderError

#: seconds for a question, and for what may be hundreds of megabytes
QUESTION: Final = 60.0
TRANSFER: Final = 3600.0
#: seconds between two looks at a batch, at most; each wait is so much longer than the one before
_SLOWEST: Final = 60.0
_GROWTH: Final = 1.5
#: a server that asks for a longer wait is asked again after this
_LONGEST: Final = 3600.0
#: rounds in a row without news of any batch before they are given up
_SILENT: Final = 10
_MOST_PAGES: Final = 1000
#: seconds by which this machine's clock and the provider's may differ
_SKEW: Final = 172_800.0
_PATIENCE: Final = RetryPolicy(base=0.5, cap=30.0)
#: failures that come before there is a connection
_UNSENT: Final = (PolicyError, ResolveError)


class Found(NamedTuple):
    """Where a batch was looked for: it is `batch`, or may be one of `maybe`, or is not there."""

    batch: str | None = None
    maybe: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Whom the flows ask, and how. `stopped` says that nobody waits for the answer any more."""

    api: BatchApi
    endpoint: Endpoint
    exchange: Exchange
    clock: Clock
    retries: int
    stopped: Callable[[], bool] = field(default=lambda: False)

    def request(self, call: Call) -> HTTPRequest:
        """A call as a request to the endpoint."""
        endpoint = self.endpoint
        assert endpoint.origin is not None  # noqa: S101 - the embedded model has no batches
        headers = [(name, value) for name, value in endpoint.headers() if name.lower() != "accept"]
        headers.append(("Accept", call.accept))
        if call.content_type is not None:
            headers.append(("Content-Type", call.content_type))
        path, *query = (endpoint.place.base + call.path).split("?", 1)
        query += [f"{name}={value}" for name, value in endpoint.place.query]
        return HTTPRequest(
            method=call.method,
            origin=endpoint.origin,
            target=path + (f"?{'&'.join(query)}" if query else ""),
            headers=tuple(headers),
            body=call.body,
            credential=endpoint.credential_name,
        )

    def error(self, reply: Reply) -> ProviderError:
        """The error of an answer outside 2xx."""
        known = self.exchange
        dated = Exchange(
            endpoint=known.endpoint, secrets=known.secrets, model=known.model, now=self.clock.time()
        )
        return self.api.decode_error(reply.status, reply.headers, reply.body, dated)

    def batch(self, reply: Reply) -> Batch:
        """The batch in an answer."""
        return self.api.decode_batch(reply.status, reply.headers, reply.body, self.exchange)

    def uploaded(self, reply: Reply) -> str:
        """The identifier in the answer to an upload."""
        return self.api.decode_upload(reply.status, reply.headers, reply.body, self.exchange)

    def page(self, reply: Reply) -> BatchPage:
        """The page of batches in an answer."""
        return self.api.decode_list(reply.status, reply.headers, reply.body, self.exchange)

    def pause(self, attempt: int, failure: Exception) -> Wait:
        """How long to wait before another attempt."""
        asked = failure.retry_after if isinstance(failure, ProviderError) else None
        return Wait(min(_LONGEST, _PATIENCE.delay(attempt, asked, self.clock.random)))


def ask(
    desk: Desk, call: Call, read: Callable[[Reply], T], *, timeout: float = QUESTION, stream: bool = False
) -> Flow[T | None]:
    """The answer to a call that may be sent as often as it takes; None where nobody waits any more."""
    request = desk.request(call)
    attempt = 0
    while True:
        got = yield from _send(desk, request, timeout, stream=stream)
        if isinstance(got, Reply):
            return read(got)
        if attempt >= desk.retries or not _passing(got):
            raise got
        yield desk.pause(attempt, got)
        if desk.stopped():
            return None
        attempt += 1


def create(desk: Desk, call: Call, look: Callable[[], Flow[Found | None]]) -> Flow[Found | None]:
    """Create a batch, once. `look` searches for it where an attempt ended in the dark."""
    request = desk.request(call)
    attempt = 0
    while True:
        got = yield from _send(desk, request, TRANSFER)
        failure = _created(desk, got) if isinstance(got, Reply) else got
        if isinstance(failure, Found):
            return failure
        dark = not refused(failure)
        if attempt >= desk.retries or not (dark or failure.retryable):
            raise failure
        yield desk.pause(attempt, failure)
        if desk.stopped():
            return None
        attempt += 1
        if dark:
            found = yield from look()
            if found is None or found.batch is not None or found.maybe:
                return found


def _created(desk: Desk, reply: Reply) -> Found | Failure:
    try:
        return Found(desk.batch(reply).id)
    except ProviderError as error:
        return error


def refused(failure: Exception) -> bool:
    """Whether a batch was surely not created: the server said no, or nothing was sent."""
    if isinstance(failure, ProviderError):
        return 400 <= (failure.status or 0) < 500 and failure.status not in (408, 409)
    return isinstance(failure, _UNSENT) or (isinstance(failure, NetError) and not failure.sent)


def search(desk: Desk, marker: str, count: int, since: float, known: Iterable[str]) -> Flow[Found | None]:
    """Look for a batch in the provider's list; None where nobody waits any more.

    By its marker, where the list shows it. Else every batch of so many requests that was not created long
    before, and is not `known` to be another one, may be it.
    """
    after: str | None = None
    others = frozenset(known)
    maybe: list[str] = []
    for _ in range(_MOST_PAGES):
        page = yield from ask(desk, desk.api.list(after), desk.page)
        if page is None:
            return None
        for batch in page.batches:
            if desk.api.marks:
                if batch.marker == marker:
                    return Found(batch.id)
            elif batch.id not in others and batch.total == count and not _older(batch, since):
                maybe.append(batch.id)
        after = page.next
        if after is None or (not desk.api.marks and any(_older(each, since) for each in page.batches)):
            return Found(None, tuple(maybe))
    raise MalformedResponseError(
        "the provider's list of batches does not end", endpoint=desk.exchange.endpoint
    )


def watch(
    desk: Desk, batches: Sequence[str], seen: Callable[[Batch], object], first: float
) -> Flow[Batch | None]:
    """Wait until one of the batches has ended; None where nobody waits any more.

    The waits grow from `first` seconds to a minute, and are longer where the server asks for it.
    """
    pause, silent = first, 0
    while True:
        asked = 0.0
        news = False
        for each in batches:
            if desk.stopped():
                return None
            found, wanted = yield from _look(desk, each)
            asked = max(asked, wanted)
            if isinstance(found, Batch):
                news = True
                seen(found)
                if found.ending is not None:
                    return found
            elif silent >= _SILENT:
                raise found
        silent = 0 if news else silent + 1
        yield Wait(max(pause, min(_LONGEST, asked)))
        pause = min(max(_SLOWEST, first), pause * _GROWTH)


def _look(desk: Desk, batch: str) -> Flow[tuple[Batch | Failure, float]]:
    """The batch at this moment, or why there is no news of it; seconds that the server asks for."""
    got = yield from _send(desk, desk.request(desk.api.retrieve(batch)), QUESTION)
    if isinstance(got, Reply):
        return _state(desk, batch, got), parse_retry_after(got.headers, desk.clock.time()) or 0.0
    if isinstance(got, NotFoundError):
        return Batch(id=batch, ending="gone", faults=(Fault(None, got),)), 0.0
    if not _passing(got):
        raise got
    return got, (got.retry_after or 0.0) if isinstance(got, ProviderError) else 0.0


def _state(desk: Desk, batch: str, reply: Reply) -> Batch | Failure:
    try:
        found = desk.batch(reply)
    except ProviderError as error:
        return error
    if found.id == batch:
        return found
    text = "the provider tells of another batch than it was asked for"
    return MalformedResponseError(text, endpoint=desk.exchange.endpoint, status=reply.status)


def _older(batch: Batch, since: float) -> bool:
    return batch.created is not None and batch.created < since - _SKEW


def _send(desk: Desk, request: HTTPRequest, timeout: float, *, stream: bool = False) -> Flow[Reply | Failure]:
    try:
        reply: Reply = yield Send(request, timeout, stream)
    except NetError as error:
        return error
    return reply if 200 <= reply.status < 300 else desk.error(reply)


def _passing(failure: Failure) -> bool:
    if isinstance(failure, ProviderError) and failure.status == 409:
        # the batch is in no state for it, and will not be
        return False
    return failure.retryable or isinstance(failure, DeadlineExceeded)
