"""OpenAI's Batch API: upload a file of requests, create a batch, download the files of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from onym.errors import BadRequestError, OnymError, ProviderError
from onym.llm.dialects import Exchange, HeaderMap, batch_api
from onym.llm.dialects.codec import parse_count
from onym.llm.dialects.openai_chat import ERROR_CODES, ERRORS
from onym.llm.dialects.streaming import DecodeChat
from onym.llm.types import Completion
from onym.net.messages import Headers
from onym.uri.components import SEGMENT

#: the member of `metadata` with the client's marker
_MARKER_NAME: Final = "onym"
_PAGE_SIZE: Final = 100
_ENDINGS: Final[Mapping[str, batch_api.Ending]] = {
    "completed": "completed",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
}
#: codes of requests that the provider did not process
_UNANSWERED: Final = {"batch_expired": "expired", "batch_cancelled": "cancelled"}


class _LineResponse(msgspec.Struct):
    status_code: int
    body: msgspec.Raw
    request_id: str | None = None


class _ResultLine(msgspec.Struct):
    response: _LineResponse | None = None
    error: dict[str, Any] | None = None


_LINE_DECODER: Final = msgspec.json.Decoder(_ResultLine)


class OpenAIBatches(batch_api.BatchApi):
    """Batches of one operation. `endpoint` is its path in the API's spelling."""

    errors = ERRORS
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

    def upload(self, marker: str, lines: Sequence[bytes]) -> batch_api.BatchRequest:
        """Return POST /files. Lines begin with `{`, so none of them equals the boundary."""
        boundary = f"onym-{marker}"
        disposition = "Content-Disposition: form-data; name="
        head = (
            f'--{boundary}\r\n{disposition}"purpose"\r\n\r\nbatch\r\n'
            f'--{boundary}\r\n{disposition}"file"; filename="onym-{marker}.jsonl"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        return batch_api.BatchRequest(
            method="POST",
            path="/files",
            body=b"".join((head.encode(), *lines, f"\r\n--{boundary}--\r\n".encode())),
            content_type=f"multipart/form-data; boundary={boundary}",
        )

    def create(self, marker: str, lines: Sequence[bytes], uploaded: str | None) -> batch_api.BatchRequest:
        """Return POST /batches."""
        body = {
            "completion_window": "24h",
            "endpoint": self.endpoint,
            "input_file_id": uploaded,
            "metadata": {_MARKER_NAME: marker},
        }
        return batch_api.BatchRequest(
            method="POST",
            path=self.base_path,
            body=msgspec.json.encode(body),
            content_type=batch_api.JSON_TYPE,
        )

    def list(self, after: str | None) -> batch_api.BatchRequest:
        """Return GET /batches."""
        return batch_api.BatchRequest(
            method="GET", path=f"{self.base_path}?limit={_PAGE_SIZE}" + (f"&after={after}" if after else "")
        )

    def download(self, batch: batch_api.Batch) -> tuple[batch_api.BatchRequest, ...]:
        """Return GET /files/{id}/content for the results and for the errors."""
        return tuple(
            batch_api.BatchRequest(
                method="GET", path=f"/files/{SEGMENT.quote(file)}/content", accept="application/binary"
            )
            for file in batch.files
        )

    def _decode_outcome(self, line: bytes, decode: DecodeChat, exchange: Exchange) -> Completion | OnymError:
        result = _LINE_DECODER.decode(line)
        response = result.response
        if response is None:
            return _decode_unanswered(result.error or {}, exchange)
        name = response.request_id
        headers = Headers([("x-request-id", name)] if name else [])
        body = bytes(response.body)
        if 200 <= response.status_code < 300:
            return decode(response.status_code, headers, body, exchange)
        return ERRORS.decode_error(response.status_code, headers, body, exchange)

    def _decode_batch(self, data: dict[str, Any], headers: HeaderMap, exchange: Exchange) -> batch_api.Batch:
        counts, metadata = data.get("request_counts"), data.get("metadata")
        counts = counts if isinstance(counts, dict) else {}
        done = [parse_count(counts.get(name)) for name in ("completed", "failed")]
        created = parse_count(data.get("created_at"))
        ending = data.get("status")
        marker = metadata.get(_MARKER_NAME) if isinstance(metadata, dict) else None
        return batch_api.Batch(
            id=batch_api.require_identifier(data.get("id")),
            ending=_ENDINGS.get(ending) if isinstance(ending, str) else None,
            total=parse_count(counts.get("total")),
            finished=sum(count or 0 for count in done),
            marker=marker if isinstance(marker, str) else None,
            created=None if created is None else float(created),
            files=tuple(
                batch_api.require_identifier(data[name])
                for name in ("output_file_id", "error_file_id")
                if data.get(name)
            ),
            faults=tuple(_decode_faults(data.get("errors"), exchange)),
        )


def _decode_unanswered(error: Mapping[str, Any], exchange: Exchange) -> ProviderError:
    """Return the error of a request without a response."""
    text, code = batch_api.decode_error_message(error, exchange)
    if code in _UNANSWERED:
        return batch_api.make_unanswered_error(_UNANSWERED[code], exchange)
    kind = ERROR_CODES.get((code or "").lower(), ProviderError)
    return kind(f"the provider did not answer this row{text}", endpoint=exchange.endpoint, provider_code=code)


def _decode_faults(errors: Any, exchange: Exchange) -> list[batch_api.BatchFault]:
    records = errors.get("data") if isinstance(errors, dict) else None
    faults = []
    for record in records if isinstance(records, list) else ():
        if isinstance(record, dict):
            text, code = batch_api.decode_error_message(record, exchange)
            kind = ERROR_CODES.get((code or "").lower(), BadRequestError)
            line = record.get("line")
            error = kind(
                f"the provider rejected the batch{text}", endpoint=exchange.endpoint, provider_code=code
            )
            faults.append(batch_api.BatchFault(line if type(line) is int and line > 0 else None, error))
    return faults


CHAT: Final = OpenAIBatches("/v1/chat/completions")
RESPONSES: Final = OpenAIBatches("/v1/responses")
