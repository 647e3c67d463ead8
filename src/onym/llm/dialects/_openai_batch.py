"""OpenAI's batch API: a file of requests is uploaded, a batch made of it, files of results come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from onym.errors import BadRequestError, MalformedResponseError, OnymError, ProviderError
from onym.llm.dialects._base import Exchange, HeaderMap
from onym.llm.dialects._batch import (
    Answer,
    Batch,
    BatchPage,
    Call,
    Decode,
    Ending,
    Fault,
    count_or_none,
    identifier,
    not_asked,
    said,
)
from onym.llm.dialects._openai_errors import CODES, FAILURES
from onym.llm.dialects._read import wrong
from onym.net.messages import Headers
from onym.uri._percent import SEGMENT

__all__ = ["CHAT", "RESPONSES", "OpenAIBatches"]

_JSON: Final = "application/json"
#: the member of `metadata` that holds the client's marker
_MARKER: Final = "onym"
_PAGE: Final = 100
_ENDINGS: Final[Mapping[str, Ending]] = {
    "completed": "completed",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
}
#: of a request that was not asked
_UNASKED: Final = {"batch_expired": "expired", "batch_cancelled": "cancelled"}


class _Response(msgspec.Struct):
    status_code: int
    body: msgspec.Raw
    request_id: str | None = None


class _Line(msgspec.Struct):
    response: _Response | None = None
    error: dict[str, Any] | None = None


class _Named(msgspec.Struct):
    custom_id: str


_NAMED: Final = msgspec.json.Decoder(_Named)
_LINE: Final = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class OpenAIBatches:
    """Batches of one operation; `endpoint` is its path, as the API spells it."""

    endpoint: str
    most: int = 50_000
    marks: bool = True

    def line(self, name: str, body: bytes) -> bytes:
        """A line of the file that is uploaded."""
        return b'{"custom_id":"%s","method":"POST","url":"%s","body":%s}\n' % (
            name.encode(),
            self.endpoint.encode(),
            body,
        )

    def upload(self, marker: str, lines: Sequence[bytes]) -> Call:
        """POST /files. A line that begins with `{` cannot be taken for the boundary."""
        boundary = f"onym-{marker}"
        disposition = "Content-Disposition: form-data; name="
        head = (
            f'--{boundary}\r\n{disposition}"purpose"\r\n\r\nbatch\r\n'
            f'--{boundary}\r\n{disposition}"file"; filename="onym-{marker}.jsonl"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        return Call(
            method="POST",
            path="/files",
            body=b"".join((head.encode(), *lines, f"\r\n--{boundary}--\r\n".encode())),
            content_type=f"multipart/form-data; boundary={boundary}",
        )

    def decode_upload(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> str:
        """The file's identifier."""
        data = FAILURES.load_object(status, headers, body, exchange)
        try:
            return identifier(data.get("id"))
        except MalformedResponseError as error:
            reason = error.message
        raise FAILURES.malformed(reason, status, headers, exchange)

    def create(self, marker: str, lines: Sequence[bytes], uploaded: str | None) -> Call:
        """POST /batches."""
        body = {
            "completion_window": "24h",
            "endpoint": self.endpoint,
            "input_file_id": uploaded,
            "metadata": {_MARKER: marker},
        }
        return Call(method="POST", path="/batches", body=msgspec.json.encode(body), content_type=_JSON)

    def retrieve(self, batch: str) -> Call:
        """GET /batches/{id}."""
        return Call(method="GET", path=f"/batches/{SEGMENT.quote(batch)}")

    def cancel(self, batch: str) -> Call:
        """POST /batches/{id}/cancel."""
        return Call(method="POST", path=f"/batches/{SEGMENT.quote(batch)}/cancel", content_type=_JSON)

    def list(self, after: str | None) -> Call:
        """GET /batches."""
        return Call(method="GET", path=f"/batches?limit={_PAGE}" + (f"&after={after}" if after else ""))

    def results(self, batch: Batch) -> tuple[Call, ...]:
        """GET /files/{id}/content, for what was answered and for what failed."""
        return tuple(
            Call(method="GET", path=f"/files/{SEGMENT.quote(each)}/content", accept="application/binary")
            for each in batch.files
        )

    def decode_batch(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> Batch:
        """A batch object."""
        data = FAILURES.load_object(status, headers, body, exchange)
        try:
            return _batch(data, exchange)
        except MalformedResponseError as error:
            reason = error.message
        raise FAILURES.malformed(reason, status, headers, exchange)

    def decode_list(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> BatchPage:
        """A list of batch objects. One that cannot be read makes the list unreadable: it may be the one."""
        data = FAILURES.load_object(status, headers, body, exchange)
        try:
            records = data.get("data")
            if not isinstance(records, list):
                raise wrong("it holds no list of batches")
            batches = tuple(_batch(each, exchange) for each in records)
        except MalformedResponseError as error:
            reason = error.message
        else:
            more = data.get("has_more") is True and batches
            return BatchPage(batches, batches[-1].id if more else None)
        raise FAILURES.malformed(reason, status, headers, exchange)

    def decode_error(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> ProviderError:
        """As for every other call."""
        return FAILURES.of_answer(status, headers, body, exchange)

    def read(self, line: bytes, decode: Decode, exchange: Exchange) -> Answer | None:
        """A line of an output or error file."""
        try:
            line.decode()
            name = _NAMED.decode(line).custom_id
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return Answer(name, _outcome(line, decode, exchange))


def _outcome(line: bytes, decode: Decode, exchange: Exchange) -> Any:
    try:
        found = _LINE.decode(line)
        response = found.response
        if response is None:
            return _unasked(found.error or {}, exchange)
        name = response.request_id
        headers = Headers([("x-request-id", name)] if name else [])
        body = bytes(response.body)
        if 200 <= response.status_code < 300:
            return decode(response.status_code, headers, body, exchange)
        return FAILURES.of_answer(response.status_code, headers, body, exchange)
    except OnymError as error:
        return error.with_traceback(None)
    except (msgspec.MsgspecError, RecursionError):
        return FAILURES.malformed("a line of the results has another shape", None, None, exchange)


def _unasked(error: Mapping[str, Any], exchange: Exchange) -> ProviderError:
    """The error of a request that has no response."""
    text, code = said(error, exchange)
    if code in _UNASKED:
        return not_asked(_UNASKED[code], exchange)
    kind = CODES.get((code or "").lower(), ProviderError)
    return kind(f"the provider did not answer this row{text}", endpoint=exchange.endpoint, provider_code=code)


def _batch(data: Any, exchange: Exchange) -> Batch:
    if not isinstance(data, dict):
        raise wrong("a batch is not an object")
    counts, metadata = data.get("request_counts"), data.get("metadata")
    counts = counts if isinstance(counts, dict) else {}
    done = [count_or_none(counts.get(name)) for name in ("completed", "failed")]
    created = count_or_none(data.get("created_at"))
    ending = data.get("status")
    marker = metadata.get(_MARKER) if isinstance(metadata, dict) else None
    return Batch(
        id=identifier(data.get("id")),
        ending=_ENDINGS.get(ending) if isinstance(ending, str) else None,
        total=count_or_none(counts.get("total")),
        finished=sum(each or 0 for each in done),
        marker=marker if isinstance(marker, str) else None,
        created=None if created is None else float(created),
        files=tuple(identifier(data[name]) for name in ("output_file_id", "error_file_id") if data.get(name)),
        faults=tuple(_faults(data.get("errors"), exchange)),
    )


def _faults(errors: Any, exchange: Exchange) -> list[Fault]:
    records = errors.get("data") if isinstance(errors, dict) else None
    found = []
    for each in records if isinstance(records, list) else ():
        if isinstance(each, dict):
            text, code = said(each, exchange)
            kind = CODES.get((code or "").lower(), BadRequestError)
            line = each.get("line")
            error = kind(
                f"the provider refused the batch{text}", endpoint=exchange.endpoint, provider_code=code
            )
            found.append(Fault(line if type(line) is int and line > 0 else None, error))
    return found


CHAT: Final = OpenAIBatches("/v1/chat/completions")
RESPONSES: Final = OpenAIBatches("/v1/responses")
