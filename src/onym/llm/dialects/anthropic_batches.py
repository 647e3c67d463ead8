"""Anthropic's Message Batches API: requests in one body, results as JSON Lines.

The API has no field for a client's marker. The request names contain the marker, and the results repeat the
names. Onym does not follow `results_url`: the results are at a known path of the same host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from onym.errors import OnymError, ProviderError
from onym.llm.dialects import Exchange, HeaderMap, batch_api
from onym.llm.dialects.anthropic_messages import ERRORS
from onym.llm.dialects.codec import get_text, parse_count, parse_timestamp
from onym.llm.dialects.streaming import DecodeChat
from onym.llm.types import Completion
from onym.net.messages import Headers
from onym.uri.components import QUERY_VALUE, SEGMENT

_PAGE_SIZE: Final = 1000
_COUNT_NAMES: Final = ("processing", "succeeded", "errored", "canceled", "expired")
_UNANSWERED: Final = {"canceled": "cancelled", "expired": "expired"}
#: the HTTP statuses that the API uses for these errors outside of batches
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


class _LineResult(msgspec.Struct):
    type: str
    message: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _ResultLine(msgspec.Struct):
    result: _LineResult


_LINE_DECODER: Final = msgspec.json.Decoder(_ResultLine)


class AnthropicBatches(batch_api.BatchApi):
    """Batches of messages."""

    errors = ERRORS
    base_path = "/v1/messages/batches"
    most = 100_000
    marks = False

    def encode_line(self, name: str, body: bytes) -> bytes:
        """Return one item of `requests`."""
        return b'{"custom_id":"%s","params":%s}' % (name.encode(), body)

    def create(self, marker: str, lines: Sequence[bytes], uploaded: str | None) -> batch_api.BatchRequest:
        """Return POST /v1/messages/batches."""
        body = b'{"requests":[%s]}' % b",".join(lines)
        return batch_api.BatchRequest(
            method="POST", path=self.base_path, body=body, content_type=batch_api.JSON_TYPE
        )

    def list(self, after: str | None) -> batch_api.BatchRequest:
        """Return GET /v1/messages/batches."""
        more = f"&after_id={QUERY_VALUE.quote(after)}" if after else ""
        return batch_api.BatchRequest(method="GET", path=f"{self.base_path}?limit={_PAGE_SIZE}{more}")

    def download(self, batch: batch_api.Batch) -> tuple[batch_api.BatchRequest, ...]:
        """Return GET /v1/messages/batches/{id}/results."""
        path = f"{self.base_path}/{SEGMENT.quote(batch.id)}/results"
        return (batch_api.BatchRequest(method="GET", path=path, accept="application/binary"),)

    def _decode_outcome(self, line: bytes, decode: DecodeChat, exchange: Exchange) -> Completion | OnymError:
        result = _LINE_DECODER.decode(line).result
        if result.type == "succeeded":
            return decode(200, Headers(), bytes(result.message), exchange)
        if result.type in _UNANSWERED:
            return batch_api.make_unanswered_error(_UNANSWERED[result.type], exchange)
        if result.type == "errored":
            return _decode_row_error(bytes(result.error), exchange)
        return self._make_line_error(exchange)

    def _decode_batch(self, data: dict[str, Any], headers: HeaderMap, exchange: Exchange) -> batch_api.Batch:
        record = data.get("request_counts")
        counts = [parse_count(record.get(name)) for name in _COUNT_NAMES] if isinstance(record, dict) else []
        present = [count for count in counts if count is not None]
        total = sum(present) if present else None
        ended = data.get("processing_status") == "ended"
        cancelled = data.get("cancel_initiated_at") is not None
        return batch_api.Batch(
            id=batch_api.require_identifier(data.get("id")),
            ending=("cancelled" if cancelled else "completed") if ended else None,
            total=total,
            finished=None if total is None else total - (counts[0] or 0),
            created=parse_timestamp(data.get("created_at")),
        )

    def _find_next(self, data: Mapping[str, Any], last: batch_api.Batch) -> str | None:
        return get_text(data, "last_id")


def _decode_row_error(body: bytes, exchange: Exchange) -> ProviderError:
    """Return the error that the same request would have caused outside of a batch."""
    data = msgspec.json.decode(body)
    error = data.get("error") if isinstance(data, dict) else None
    kind = error.get("type") if isinstance(error, dict) else None
    name = get_text(data, "request_id") if isinstance(data, dict) else None
    headers = Headers([("request-id", name)] if name else [])
    status = _STATUSES.get(kind, 500) if isinstance(kind, str) else 500
    return ERRORS.decode_error(status, headers, body, exchange)


MESSAGES: Final = AnthropicBatches()
