"""Anthropic's Message Batches API: requests go in one body, results come as JSON Lines.

A batch has no room for a marker of the client's: the names of its requests hold it, and its results show
them.
The address in `results_url` is never followed: the results are at a known path of the same host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from onym.errors import MalformedResponseError, OnymError, ProviderError
from onym.llm.dialects._anthropic_errors import FAILURES
from onym.llm.dialects._base import Exchange, HeaderMap
from onym.llm.dialects._batch import (
    Answer,
    Batch,
    BatchPage,
    Call,
    Decode,
    count_or_none,
    identifier,
    not_asked,
)
from onym.llm.dialects._read import text, wrong
from onym.net.messages import Headers
from onym.uri._percent import QUERY_VALUE, SEGMENT

__all__ = ["MESSAGES", "AnthropicBatches"]

_JSON: Final = "application/json"
_ROOT: Final = "/v1/messages/batches"
_PAGE: Final = 1000
_COUNTS: Final = ("processing", "succeeded", "errored", "canceled", "expired")
_UNASKED: Final = {"canceled": "cancelled", "expired": "expired"}
#: the statuses with which the API answers such errors elsewhere
_STATUSES: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class _Named(msgspec.Struct):
    custom_id: str


class _Result(msgspec.Struct):
    type: str
    message: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _Line(msgspec.Struct):
    result: _Result


_NAMED: Final = msgspec.json.Decoder(_Named)
_LINE: Final = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class AnthropicBatches:
    """Batches of messages."""

    most: int = 100_000
    marks: bool = False

    def line(self, name: str, body: bytes) -> bytes:
        """One of `requests`."""
        return b'{"custom_id":"%s","params":%s}' % (name.encode(), body)

    def upload(self, marker: str, lines: Sequence[bytes]) -> None:
        """There is nothing to upload."""
        return

    def decode_upload(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> str:
        """Never called: there is nothing to upload."""
        raise FAILURES.malformed("nothing was uploaded", status, headers, exchange)

    def create(self, marker: str, lines: Sequence[bytes], uploaded: str | None) -> Call:
        """POST /v1/messages/batches."""
        body = b'{"requests":[%s]}' % b",".join(lines)
        return Call(method="POST", path=_ROOT, body=body, content_type=_JSON)

    def retrieve(self, batch: str) -> Call:
        """GET /v1/messages/batches/{id}."""
        return Call(method="GET", path=f"{_ROOT}/{SEGMENT.quote(batch)}")

    def cancel(self, batch: str) -> Call:
        """POST /v1/messages/batches/{id}/cancel."""
        return Call(method="POST", path=f"{_ROOT}/{SEGMENT.quote(batch)}/cancel", content_type=_JSON)

    def list(self, after: str | None) -> Call:
        """GET /v1/messages/batches."""
        more = f"&after_id={QUERY_VALUE.quote(after)}" if after else ""
        return Call(method="GET", path=f"{_ROOT}?limit={_PAGE}{more}")

    def results(self, batch: Batch) -> tuple[Call, ...]:
        """GET /v1/messages/batches/{id}/results."""
        path = f"{_ROOT}/{SEGMENT.quote(batch.id)}/results"
        return (Call(method="GET", path=path, accept="application/binary"),)

    def decode_batch(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> Batch:
        """A message batch."""
        data = FAILURES.load_object(status, headers, body, exchange)
        try:
            return _batch(data)
        except MalformedResponseError as error:
            reason = error.message
        raise FAILURES.malformed(reason, status, headers, exchange)

    def decode_list(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> BatchPage:
        """A list of message batches. One that cannot be read makes the list unreadable: it may be the one."""
        data = FAILURES.load_object(status, headers, body, exchange)
        try:
            records = data.get("data")
            if not isinstance(records, list):
                raise wrong("it holds no list of batches")
            batches = tuple(_batch(each) for each in records)
        except MalformedResponseError as error:
            reason = error.message
        else:
            return BatchPage(batches, text(data, "last_id") if data.get("has_more") is True else None)
        raise FAILURES.malformed(reason, status, headers, exchange)

    def decode_error(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> ProviderError:
        """As for every other call."""
        return FAILURES.of_answer(status, headers, body, exchange)

    def read(self, line: bytes, decode: Decode, exchange: Exchange) -> Answer | None:
        """A line of the results."""
        try:
            line.decode()
            name = _NAMED.decode(line).custom_id
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return Answer(name, _outcome(line, decode, exchange))


def _outcome(line: bytes, decode: Decode, exchange: Exchange) -> Any:
    try:
        result = _LINE.decode(line).result
        if result.type == "succeeded":
            return decode(200, Headers(), bytes(result.message), exchange)
        if result.type in _UNASKED:
            return not_asked(_UNASKED[result.type], exchange)
        if result.type == "errored":
            return _errored(bytes(result.error), exchange)
    except OnymError as error:
        return error.with_traceback(None)
    except (msgspec.MsgspecError, RecursionError):
        pass
    return FAILURES.malformed("a line of the results has another shape", None, None, exchange)


def _errored(body: bytes, exchange: Exchange) -> ProviderError:
    """The error that the same request would have met outside of a batch."""
    data = msgspec.json.decode(body)
    error = data.get("error") if isinstance(data, dict) else None
    kind = error.get("type") if isinstance(error, dict) else None
    name = text(data, "request_id") if isinstance(data, dict) else None
    headers = Headers([("request-id", name)] if name else [])
    status = _STATUSES.get(kind, 500) if isinstance(kind, str) else 500
    return FAILURES.of_answer(status, headers, body, exchange)


def _batch(data: Any) -> Batch:
    if not isinstance(data, dict):
        raise wrong("a batch is not an object")
    given = data.get("request_counts")
    counts = [count_or_none(given.get(name)) for name in _COUNTS] if isinstance(given, dict) else []
    known = [each for each in counts if each is not None]
    total = sum(known) if known else None
    ended = data.get("processing_status") == "ended"
    stopped = data.get("cancel_initiated_at") is not None
    return Batch(
        id=identifier(data.get("id")),
        ending=("cancelled" if stopped else "completed") if ended else None,
        total=total,
        finished=None if total is None else total - (counts[0] or 0),
        created=_seconds(data.get("created_at")),
    )


def _seconds(value: Any) -> float | None:
    """An RFC 3339 time as seconds since 1970."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
        return None if moment is None or moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None


MESSAGES: Final = AnthropicBatches()
