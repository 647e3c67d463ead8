"""Batch APIs of providers: Anthropic's Message Batches and OpenAI's Batch API.

The functions are pure: they build requests and decode responses, and do not send, wait or read a clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

import msgspec

from onym.errors import BadRequestError, OnymError, ProviderError
from onym.llm import dialects
from onym.llm.dialects import anthropic_messages, codec, openai_chat
from onym.llm.dialects.streaming import DecodeChat
from onym.llm.types import Completion
from onym.net.messages import Headers
from onym.uri.components import QUERY_VALUE, SEGMENT

#: how a batch ended; `gone` is a batch that the provider no longer knows
Ending: TypeAlias = Literal["completed", "failed", "expired", "cancelled", "gone"]

#: an identifier becomes one segment of a path, so it must not contain a delimiter
_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._:~-]{0,255}")


class _RequestName(msgspec.Struct):
    custom_id: str


_NAME_DECODER: Final = msgspec.json.Decoder(_RequestName)
#: the media type of requests
JSON_TYPE: Final = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """One request: `path` is below the provider's base path and may contain a query."""

    method: str
    path: str
    body: bytes = field(default=b"", repr=False)
    content_type: str | None = None
    accept: str = JSON_TYPE


class BatchFault(NamedTuple):
    """Why a batch failed. `line` (from 1) is the request that caused it, None for all requests."""

    line: int | None
    error: ProviderError


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch as the provider describes it.

    `ending` is None while it is in progress. `total` and `finished` count requests, `marker` is the client's
    own name for the batch, `created` is seconds since the epoch; each is None if the provider does not report
    it. `files` are the identifiers of the files with the results, if there are any.
    """

    id: str
    ending: Ending | None = None
    total: int | None = None
    finished: int | None = None
    marker: str | None = None
    created: float | None = None
    files: tuple[str, ...] = ()
    faults: tuple[BatchFault, ...] = ()


class BatchPage(NamedTuple):
    """A page of the list of batches. `next` requests the following page; None on the last page."""

    batches: tuple[Batch, ...]
    next: str | None = None


class BatchAnswer(NamedTuple):
    """One line of the results: the request's name and its outcome."""

    name: str
    outcome: Completion | OnymError


class BatchApi:
    """A provider's batch API: a list of batches in `data`, and results as JSON Lines with `custom_id`.

    Names of requests consist of letters, digits and hyphens, 64 at most.
    """

    #: the error decoder of the API format
    errors: ClassVar[dialects.ErrorDecoder]
    #: the path of the batches
    base_path: ClassVar[str]
    #: the largest number of requests in one batch
    most: ClassVar[int]
    #: whether the list of batches shows the client's marker
    marks: ClassVar[bool]

    def encode_line(self, name: str, body: bytes) -> bytes:
        """Return one request in the form in which it is sent; `body` is JSON."""
        raise NotImplementedError

    def upload(self, marker: str, lines: Sequence[bytes]) -> BatchRequest | None:
        """Return the request that uploads the lines, None if `create` contains them."""
        return None

    def decode_upload(
        self, status: int, headers: dialects.HeaderMap, body: bytes, exchange: dialects.Exchange
    ) -> str:
        """Return the identifier of the uploaded file; raises ProviderError."""
        return self.errors.decode_objects(_decode_identifier)(status, headers, body, exchange)

    def create(self, marker: str, lines: Sequence[bytes], uploaded: str | None) -> BatchRequest:
        """Return the request that creates a batch, which has to be paid for."""
        raise NotImplementedError

    def retrieve(self, batch: str) -> BatchRequest:
        """Return the request for the state of a batch."""
        return BatchRequest(method="GET", path=f"{self.base_path}/{SEGMENT.quote(batch)}")

    def cancel(self, batch: str) -> BatchRequest:
        """Return the request that cancels a batch."""
        path = f"{self.base_path}/{SEGMENT.quote(batch)}/cancel"
        return BatchRequest(method="POST", path=path, content_type=JSON_TYPE)

    def list(self, after: str | None) -> BatchRequest:
        """Return the request for a page of the list of batches, newest first."""
        raise NotImplementedError

    def download(self, batch: Batch) -> tuple[BatchRequest, ...]:
        """Return the requests for the results of a batch that has ended."""
        raise NotImplementedError

    def decode_batch(
        self, status: int, headers: dialects.HeaderMap, body: bytes, exchange: dialects.Exchange
    ) -> Batch:
        """Decode a 2xx response to `create`, `retrieve` or `cancel`; raises ProviderError."""
        return self.errors.decode_objects(self._decode_batch)(status, headers, body, exchange)

    def decode_list(
        self, status: int, headers: dialects.HeaderMap, body: bytes, exchange: dialects.Exchange
    ) -> BatchPage:
        """Decode a 2xx response to `list`.

        Raises ProviderError also if one of the batches is malformed: it may be this client's.
        """
        return self.errors.decode_objects(self._decode_page)(status, headers, body, exchange)

    def decode_error(
        self, status: int, headers: dialects.HeaderMap, body: bytes, exchange: dialects.Exchange
    ) -> ProviderError:
        """Return the error in any other response. It is not raised."""
        return self.errors.decode_error(status, headers, body, exchange)

    def decode_line(self, line: bytes, decode: DecodeChat, exchange: dialects.Exchange) -> BatchAnswer | None:
        """Decode a line of the results; None if it is cut or names no request."""
        try:
            # the decoder checks UTF-8 only in the fields that it keeps
            line.decode()
            name = _NAME_DECODER.decode(line).custom_id
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        try:
            return BatchAnswer(name, self._decode_outcome(line, decode, exchange))
        except OnymError as error:
            return BatchAnswer(name, error.with_traceback(None))
        except (msgspec.MsgspecError, RecursionError):
            return BatchAnswer(name, self._make_line_error(exchange))

    def _make_line_error(self, exchange: dialects.Exchange) -> ProviderError:
        text = "a line of the results is malformed"
        return self.errors.make_malformed_error(text, None, None, exchange)

    def _decode_page(
        self, data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
    ) -> BatchPage:
        records = data.get("data")
        if not isinstance(records, list):
            raise codec.make_malformed_error("it has no list of batches")
        if not all(isinstance(record, dict) for record in records):
            raise codec.make_malformed_error("a batch is not an object")
        batches = tuple(self._decode_batch(record, headers, exchange) for record in records)
        more = data.get("has_more") is True and batches
        return BatchPage(batches, self._find_next(data, batches[-1]) if more else None)

    def _find_next(self, data: Mapping[str, Any], last: Batch) -> str | None:
        """Return the value that requests the next page."""
        return last.id

    def _decode_batch(
        self, data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
    ) -> Batch:
        raise NotImplementedError

    def _decode_outcome(
        self, line: bytes, decode: DecodeChat, exchange: dialects.Exchange
    ) -> Completion | OnymError:
        """Decode the completion or the error in a line of the results."""
        raise NotImplementedError


def _decode_identifier(data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange) -> str:
    return require_identifier(data.get("id"))


def require_identifier(value: Any) -> str:
    """Return a server's identifier if it is safe in a path, else raise MalformedResponseError."""
    if not isinstance(value, str) or _IDENTIFIER.fullmatch(value) is None:
        raise codec.make_malformed_error("an identifier is missing or invalid")
    return value


def decode_error_message(error: Mapping[str, Any], exchange: dialects.Exchange) -> tuple[str, str | None]:
    """Return the printable message of an error record (": text" or "") and its code."""
    text, code = error.get("message"), error.get("code")
    shown = dialects.clean_message(text, exchange) if isinstance(text, str) else ""
    known = code if isinstance(code, str) and _IDENTIFIER.fullmatch(code) is not None else None
    return (f": {shown}" if shown else ""), dialects.clean_identifier(known, exchange)


def make_unanswered_error(ending: str, exchange: dialects.Exchange) -> ProviderError:
    """Return the error of a row that has no answer after its batch ended with `ending`."""
    return ProviderError(
        _ENDING_MESSAGES.get(ending, _ENDING_MESSAGES["completed"]),
        code=f"provider.batch-{ending}" if ending != "completed" else "provider.malformed",
        endpoint=exchange.endpoint,
        hint="Send the row again with --retry-errors (retry_errors=True).",
    )


_ENDING_MESSAGES: Final[Mapping[str, str]] = {
    "completed": "the results of the batch have no answer to this row",
    "failed": "the provider rejected the batch",
    "expired": "the batch expired before this row was processed",
    "cancelled": "the batch was cancelled before this row was processed",
    "gone": "the provider no longer knows this batch",
}


_COUNT_NAMES: Final = ("processing", "succeeded", "errored", "canceled", "expired")
_ANTHROPIC_UNANSWERED: Final = {"canceled": "cancelled", "expired": "expired"}
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


class _AnthropicResult(msgspec.Struct):
    type: str
    message: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _AnthropicLine(msgspec.Struct):
    result: _AnthropicResult


_ANTHROPIC_LINE_DECODER: Final = msgspec.json.Decoder(_AnthropicLine)


class AnthropicBatches(BatchApi):
    """Anthropic's Message Batches: requests in one body.

    The API has no field for a client's marker. The request names contain the marker, and the results repeat
    the names. Onym does not follow `results_url`: the results are at a known path of the same host.
    """

    errors = anthropic_messages.ERRORS
    base_path = "/v1/messages/batches"
    most = 100_000
    marks = False

    def encode_line(self, name: str, body: bytes) -> bytes:
        """Return one item of `requests`."""
        return b'{"custom_id":"%s","params":%s}' % (name.encode(), body)

    def create(self, marker: str, lines: Sequence[bytes], uploaded: str | None) -> BatchRequest:
        """Return POST /v1/messages/batches."""
        body = b'{"requests":[%s]}' % b",".join(lines)
        return BatchRequest(method="POST", path=self.base_path, body=body, content_type=JSON_TYPE)

    def list(self, after: str | None) -> BatchRequest:
        """Return GET /v1/messages/batches."""
        more = f"&after_id={QUERY_VALUE.quote(after)}" if after else ""
        return BatchRequest(method="GET", path=f"{self.base_path}?limit=1000{more}")

    def download(self, batch: Batch) -> tuple[BatchRequest, ...]:
        """Return GET /v1/messages/batches/{id}/results."""
        path = f"{self.base_path}/{SEGMENT.quote(batch.id)}/results"
        return (BatchRequest(method="GET", path=path, accept="application/binary"),)

    def _decode_outcome(
        self, line: bytes, decode: DecodeChat, exchange: dialects.Exchange
    ) -> Completion | OnymError:
        result = _ANTHROPIC_LINE_DECODER.decode(line).result
        if result.type == "succeeded":
            return decode(200, Headers(), bytes(result.message), exchange)
        if result.type in _ANTHROPIC_UNANSWERED:
            return make_unanswered_error(_ANTHROPIC_UNANSWERED[result.type], exchange)
        if result.type == "errored":
            return _decode_row_error(bytes(result.error), exchange)
        return self._make_line_error(exchange)

    def _decode_batch(
        self, data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
    ) -> Batch:
        record = data.get("request_counts")
        counts = (
            [codec.parse_count(record.get(name)) for name in _COUNT_NAMES] if isinstance(record, dict) else []
        )
        present = [count for count in counts if count is not None]
        total = sum(present) if present else None
        ended = data.get("processing_status") == "ended"
        cancelled = data.get("cancel_initiated_at") is not None
        return Batch(
            id=require_identifier(data.get("id")),
            ending=("cancelled" if cancelled else "completed") if ended else None,
            total=total,
            finished=None if total is None else total - (counts[0] or 0),
            created=codec.parse_timestamp(data.get("created_at")),
        )

    def _find_next(self, data: Mapping[str, Any], last: Batch) -> str | None:
        return codec.get_text(data, "last_id")


def _decode_row_error(body: bytes, exchange: dialects.Exchange) -> ProviderError:
    """Return the error that the same request would have caused outside of a batch."""
    data = msgspec.json.decode(body)
    error = data.get("error") if isinstance(data, dict) else None
    kind = error.get("type") if isinstance(error, dict) else None
    name = codec.get_text(data, "request_id") if isinstance(data, dict) else None
    headers = Headers([("request-id", name)] if name else [])
    status = _STATUSES.get(kind, 500) if isinstance(kind, str) else 500
    return anthropic_messages.ERRORS.decode_error(status, headers, body, exchange)


#: the member of `metadata` with the client's marker
_MARKER_NAME: Final = "onym"
_ENDINGS: Final[tuple[Ending, ...]] = ("completed", "failed", "expired", "cancelled")
#: codes of requests that the provider did not process
_OPENAI_UNANSWERED: Final = {"batch_expired": "expired", "batch_cancelled": "cancelled"}


class _OpenAIResponse(msgspec.Struct):
    status_code: int
    body: msgspec.Raw
    request_id: str | None = None


class _OpenAILine(msgspec.Struct):
    response: _OpenAIResponse | None = None
    error: dict[str, Any] | None = None


_OPENAI_LINE_DECODER: Final = msgspec.json.Decoder(_OpenAILine)


class OpenAIBatches(BatchApi):
    """OpenAI's Batch API for one operation: upload a file of requests, create a batch, download the results.

    `endpoint` is the operation's path in the API's spelling.
    """

    errors = openai_chat.ERRORS
    base_path = "/batches"
    most = 50_000
    marks = True

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def encode_line(self, name: str, body: bytes) -> bytes:
        """Return one line of the uploaded file."""
        return b'{"custom_id":"%s","method":"POST","url":"%s","body":%s}\n' % (
            name.encode(),
            self.endpoint.encode(),
            body,
        )

    def upload(self, marker: str, lines: Sequence[bytes]) -> BatchRequest:
        """Return POST /files. Lines begin with `{`, so none of them equals the boundary."""
        boundary = f"onym-{marker}"
        disposition = "Content-Disposition: form-data; name="
        head = (
            f'--{boundary}\r\n{disposition}"purpose"\r\n\r\nbatch\r\n'
            f'--{boundary}\r\n{disposition}"file"; filename="onym-{marker}.jsonl"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        return BatchRequest(
            method="POST",
            path="/files",
            body=b"".join((head.encode(), *lines, f"\r\n--{boundary}--\r\n".encode())),
            content_type=f"multipart/form-data; boundary={boundary}",
        )

    def create(self, marker: str, lines: Sequence[bytes], uploaded: str | None) -> BatchRequest:
        """Return POST /batches."""
        body = {
            "completion_window": "24h",
            "endpoint": self.endpoint,
            "input_file_id": uploaded,
            "metadata": {_MARKER_NAME: marker},
        }
        return BatchRequest(
            method="POST",
            path=self.base_path,
            body=msgspec.json.encode(body),
            content_type=JSON_TYPE,
        )

    def list(self, after: str | None) -> BatchRequest:
        """Return GET /batches."""
        return BatchRequest(
            method="GET", path=f"{self.base_path}?limit=100" + (f"&after={after}" if after else "")
        )

    def download(self, batch: Batch) -> tuple[BatchRequest, ...]:
        """Return GET /files/{id}/content for the results and for the errors."""
        return tuple(
            BatchRequest(
                method="GET", path=f"/files/{SEGMENT.quote(file)}/content", accept="application/binary"
            )
            for file in batch.files
        )

    def _decode_outcome(
        self, line: bytes, decode: DecodeChat, exchange: dialects.Exchange
    ) -> Completion | OnymError:
        result = _OPENAI_LINE_DECODER.decode(line)
        response = result.response
        if response is None:
            return _decode_unanswered(result.error or {}, exchange)
        name = response.request_id
        headers = Headers([("x-request-id", name)] if name else [])
        body = bytes(response.body)
        if 200 <= response.status_code < 300:
            return decode(response.status_code, headers, body, exchange)
        return openai_chat.ERRORS.decode_error(response.status_code, headers, body, exchange)

    def _decode_batch(
        self, data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
    ) -> Batch:
        counts, metadata = data.get("request_counts"), data.get("metadata")
        counts = counts if isinstance(counts, dict) else {}
        done = [codec.parse_count(counts.get(name)) for name in ("completed", "failed")]
        created = codec.parse_count(data.get("created_at"))
        marker = metadata.get(_MARKER_NAME) if isinstance(metadata, dict) else None
        return Batch(
            id=require_identifier(data.get("id")),
            ending=next((ending for ending in _ENDINGS if ending == data.get("status")), None),
            total=codec.parse_count(counts.get("total")),
            finished=sum(count or 0 for count in done),
            marker=marker if isinstance(marker, str) else None,
            created=None if created is None else float(created),
            files=tuple(
                require_identifier(data[name])
                for name in ("output_file_id", "error_file_id")
                if data.get(name)
            ),
            faults=tuple(_decode_faults(data.get("errors"), exchange)),
        )


def _decode_unanswered(error: Mapping[str, Any], exchange: dialects.Exchange) -> ProviderError:
    text, code = decode_error_message(error, exchange)
    if code in _OPENAI_UNANSWERED:
        return make_unanswered_error(_OPENAI_UNANSWERED[code], exchange)
    kind = openai_chat.ERROR_CODES.get((code or "").lower(), ProviderError)
    return kind(f"the provider did not answer this row{text}", endpoint=exchange.endpoint, provider_code=code)


def _decode_faults(errors: Any, exchange: dialects.Exchange) -> list[BatchFault]:
    records = errors.get("data") if isinstance(errors, dict) else None
    faults = []
    for record in records if isinstance(records, list) else ():
        if isinstance(record, dict):
            text, code = decode_error_message(record, exchange)
            kind = openai_chat.ERROR_CODES.get((code or "").lower(), BadRequestError)
            line = record.get("line")
            error = kind(
                f"the provider rejected the batch{text}", endpoint=exchange.endpoint, provider_code=code
            )
            faults.append(BatchFault(line if type(line) is int and line > 0 else None, error))
    return faults


MESSAGES: Final = AnthropicBatches()
CHAT: Final = OpenAIBatches("/v1/chat/completions")
RESPONSES: Final = OpenAIBatches("/v1/responses")
#: the batch API of an API format
BATCH_APIS: Final[Mapping[str, BatchApi]] = {
    "anthropic_messages": MESSAGES,
    "openai_chat": CHAT,
    "openai_responses": RESPONSES,
}
