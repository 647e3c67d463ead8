"""Calls of a provider's batch API as flows of `Send` and `Wait`, without I/O and without a clock.

Reads are retried like any other call. Creating a batch is not: if it is unknown whether a failed attempt
created a batch, the flow searches the provider's list before it creates another.
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
    UnsupportedError,
)
from onym.llm.dialects import Exchange
from onym.llm.dialects.batch_api import Batch, BatchApi, BatchFault, BatchPage, BatchRequest, find_batch_api
from onym.llm.endpoint import Endpoint
from onym.llm.flow import Clock
from onym.net.limits import RetryPolicy, parse_retry_after
from onym.net.messages import Flow, HTTPRequest, Reply, Send, Wait


def require_batch_api(endpoint: Endpoint) -> BatchApi:
    """The batch API of this endpoint. Raises UnsupportedError where it is known to have none."""
    known = endpoint.provider.capabilities.get("batch", "unknown")
    api = find_batch_api(endpoint.dialect.name)
    # what is below one model's path, signed or on this machine has no files and no batches beside it
    apart = endpoint.is_embedded or endpoint.is_signed or "{model}" in endpoint.place.base
    if api is None or known == "no" or apart:
        raise make_no_api_error(endpoint)
    return api


def make_no_api_error(endpoint: Endpoint) -> UnsupportedError:
    return UnsupportedError(
        f"{endpoint.provider.title} has no batch API that is known here",
        code="llm.no-batch",
        parameter="batch",
        model=endpoint.model,
        source=endpoint.provider.source,
        hint="leave out --provider-batch",
    )


T = TypeVar("T")
CallFailure: TypeAlias = NetError | ProviderError

#: seconds for a question, and for what may be hundreds of megabytes
CALL_TIMEOUT: Final = 60.0
TRANSFER_TIMEOUT: Final = 3600.0
#: seconds between two looks at a batch, at most; each wait is so much longer than the one before
_MAX_POLL: Final = 60.0
_POLL_GROWTH: Final = 1.5
#: a server that asks for a longer wait is asked again after this
_MAX_WAIT: Final = 3600.0
#: rounds in a row without news of any batch before they are given up
_MAX_SILENT_ROUNDS: Final = 10
_MAX_PAGES: Final = 1000
#: seconds by which this machine's clock and the provider's may differ
_CLOCK_SKEW: Final = 172_800.0
_RETRY_POLICY: Final = RetryPolicy(base=0.5, cap=30.0)
#: failures that come before there is a connection
_UNSENT_ERRORS: Final = (PolicyError, ResolveError)


class BatchSearch(NamedTuple):
    """Where a batch was looked for: it is `batch`, or may be one of `maybe`, or is not there."""

    batch: str | None = None
    maybe: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchClient:
    """Whom the flows ask, and how. `stopped` says that nobody waits for the answer any more."""

    api: BatchApi
    endpoint: Endpoint
    exchange: Exchange
    clock: Clock
    retries: int
    stopped: Callable[[], bool] = field(default=lambda: False)

    def build_request(self, call: BatchRequest) -> HTTPRequest:
        """A call as a request to the endpoint."""
        endpoint = self.endpoint
        assert endpoint.origin is not None  # noqa: S101 - the embedded model has no batches
        headers = [(name, value) for name, value in endpoint.build_headers() if name.lower() != "accept"]
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

    def decode_error(self, reply: Reply) -> ProviderError:
        """The error of an answer outside 2xx."""
        known = self.exchange
        dated = Exchange(
            endpoint=known.endpoint, secrets=known.secrets, model=known.model, now=self.clock.time()
        )
        return self.api.decode_error(reply.status, reply.headers, reply.body, dated)

    def decode_batch(self, reply: Reply) -> Batch:
        """The batch in an answer."""
        return self.api.decode_batch(reply.status, reply.headers, reply.body, self.exchange)

    def decode_upload(self, reply: Reply) -> str:
        """The identifier in the answer to an upload."""
        return self.api.decode_upload(reply.status, reply.headers, reply.body, self.exchange)

    def decode_list(self, reply: Reply) -> BatchPage:
        """The page of batches in an answer."""
        return self.api.decode_list(reply.status, reply.headers, reply.body, self.exchange)

    def compute_wait(self, attempt: int, failure: Exception) -> Wait:
        """How long to wait before another attempt."""
        asked = failure.retry_after if isinstance(failure, ProviderError) else None
        return Wait(min(_MAX_WAIT, _RETRY_POLICY.delay(attempt, asked, self.clock.random)))


def call_api(
    desk: BatchClient,
    call: BatchRequest,
    read: Callable[[Reply], T],
    *,
    timeout: float = CALL_TIMEOUT,
    stream: bool = False,
) -> Flow[T | None]:
    """The answer to a call that may be sent as often as it takes; None where nobody waits any more."""
    request = desk.build_request(call)
    attempt = 0
    while True:
        got = yield from _send_request(desk, request, timeout, stream=stream)
        if isinstance(got, Reply):
            return read(got)
        if attempt >= desk.retries or not _is_retryable(got):
            raise got
        yield desk.compute_wait(attempt, got)
        if desk.stopped():
            return None
        attempt += 1


def create_batch(
    desk: BatchClient, call: BatchRequest, look: Callable[[], Flow[BatchSearch | None]]
) -> Flow[BatchSearch | None]:
    """Create a batch, once. `look` searches for it where an attempt ended in the dark."""
    request = desk.build_request(call)
    attempt = 0
    while True:
        got = yield from _send_request(desk, request, TRANSFER_TIMEOUT)
        failure = _decode_created(desk, got) if isinstance(got, Reply) else got
        if isinstance(failure, BatchSearch):
            return failure
        dark = not is_rejected(failure)
        if attempt >= desk.retries or not (dark or failure.retryable):
            raise failure
        yield desk.compute_wait(attempt, failure)
        if desk.stopped():
            return None
        attempt += 1
        if dark:
            found = yield from look()
            if found is None or found.batch is not None or found.maybe:
                return found


def _decode_created(desk: BatchClient, reply: Reply) -> BatchSearch | CallFailure:
    try:
        return BatchSearch(desk.decode_batch(reply).id)
    except ProviderError as error:
        return error


def is_rejected(failure: Exception) -> bool:
    """Whether a batch was surely not created: the server said no, or nothing was sent."""
    if isinstance(failure, ProviderError):
        return 400 <= (failure.status or 0) < 500 and failure.status not in (408, 409)
    return isinstance(failure, _UNSENT_ERRORS) or (isinstance(failure, NetError) and not failure.sent)


def search_batches(
    desk: BatchClient, marker: str, count: int, since: float, known: Iterable[str]
) -> Flow[BatchSearch | None]:
    """Look for a batch in the provider's list; None where nobody waits any more.

    By its marker, where the list shows it. Else every batch of so many requests that was not created long
    before, and is not `known` to be another one, may be it.
    """
    after: str | None = None
    others = frozenset(known)
    maybe: list[str] = []
    for _ in range(_MAX_PAGES):
        page = yield from call_api(desk, desk.api.list(after), desk.decode_list)
        if page is None:
            return None
        for batch in page.batches:
            if desk.api.marks:
                if batch.marker == marker:
                    return BatchSearch(batch.id)
            elif batch.id not in others and batch.total == count and not _is_older(batch, since):
                maybe.append(batch.id)
        after = page.next
        if after is None or (not desk.api.marks and any(_is_older(item, since) for item in page.batches)):
            return BatchSearch(None, tuple(maybe))
    raise MalformedResponseError(
        "the provider's list of batches does not end", endpoint=desk.exchange.endpoint
    )


def watch_batches(
    desk: BatchClient, batches: Sequence[str], seen: Callable[[Batch], object], first: float
) -> Flow[Batch | None]:
    """Wait until one of the batches has ended; None where nobody waits any more.

    The waits grow from `first` seconds to a minute, and are longer where the server asks for it.
    """
    pause, silent = first, 0
    while True:
        asked = 0.0
        news = False
        for batch in batches:
            if desk.stopped():
                return None
            found, wanted = yield from _poll_batch(desk, batch)
            asked = max(asked, wanted)
            if isinstance(found, Batch):
                news = True
                seen(found)
                if found.ending is not None:
                    return found
            elif silent >= _MAX_SILENT_ROUNDS:
                raise found
        silent = 0 if news else silent + 1
        yield Wait(max(pause, min(_MAX_WAIT, asked)))
        pause = min(max(_MAX_POLL, first), pause * _POLL_GROWTH)


def _poll_batch(desk: BatchClient, batch: str) -> Flow[tuple[Batch | CallFailure, float]]:
    """The batch at this moment, or why there is no news of it; seconds that the server asks for."""
    got = yield from _send_request(desk, desk.build_request(desk.api.retrieve(batch)), CALL_TIMEOUT)
    if isinstance(got, Reply):
        return _decode_state(desk, batch, got), parse_retry_after(got.headers, desk.clock.time()) or 0.0
    if isinstance(got, NotFoundError):
        return Batch(id=batch, ending="gone", faults=(BatchFault(None, got),)), 0.0
    if not _is_retryable(got):
        raise got
    return got, (got.retry_after or 0.0) if isinstance(got, ProviderError) else 0.0


def _decode_state(desk: BatchClient, batch: str, reply: Reply) -> Batch | CallFailure:
    try:
        found = desk.decode_batch(reply)
    except ProviderError as error:
        return error
    if found.id == batch:
        return found
    text = "the provider tells of another batch than it was asked for"
    return MalformedResponseError(text, endpoint=desk.exchange.endpoint, status=reply.status)


def _is_older(batch: Batch, since: float) -> bool:
    return batch.created is not None and batch.created < since - _CLOCK_SKEW


def _send_request(
    desk: BatchClient, request: HTTPRequest, timeout: float, *, stream: bool = False
) -> Flow[Reply | CallFailure]:
    try:
        reply: Reply = yield Send(request, timeout, stream)
    except NetError as error:
        return error
    return reply if 200 <= reply.status < 300 else desk.decode_error(reply)


def _is_retryable(failure: CallFailure) -> bool:
    if isinstance(failure, ProviderError) and failure.status == 409:
        # the batch is in no state for it, and will not be
        return False
    return failure.retryable or isinstance(failure, DeadlineExceeded)
