"""Batch APIs of providers: the interface, its data types and its lookup.

An API format with a batch API has an entry in `BATCH_APIS`. The functions are pure: they build requests and
decode responses, and do not send, wait or read a clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from onym.errors import OnymError, ProviderError
from onym.llm.dialects import Exchange, HeaderMap
from onym.llm.dialects.codec import make_malformed_error
from onym.llm.dialects.errors import ErrorDecoder, clean_identifier, clean_message
from onym.llm.dialects.streaming import DecodeChat
from onym.llm.types import Completion
from onym.uri.components import SEGMENT

#: how a batch ended; `gone` is a batch that the provider no longer knows
Ending: TypeAlias = Literal["completed", "failed", "expired", "cancelled", "gone"]

#: API formats with a batch API, and where its implementation is
BATCH_APIS: Final[Mapping[str, str]] = {
    "anthropic_messages": "onym.llm.dialects.anthropic_batches:MESSAGES",
    "openai_chat": "onym.llm.dialects.openai_batches:CHAT",
    "openai_responses": "onym.llm.dialects.openai_batches:RESPONSES",
}

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
    errors: ClassVar[ErrorDecoder]
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

    def decode_upload(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> str:
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

    def decode_batch(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> Batch:
        """Decode a 2xx response to `create`, `retrieve` or `cancel`; raises ProviderError."""
        return self.errors.decode_objects(self._decode_batch)(status, headers, body, exchange)

    def decode_list(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> BatchPage:
        """Decode a 2xx response to `list`.

        Raises ProviderError also if one of the batches is malformed: it may be this client's.
        """
        return self.errors.decode_objects(self._decode_page)(status, headers, body, exchange)

    def decode_error(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> ProviderError:
        """Return the error in any other response. It is not raised."""
        return self.errors.decode_error(status, headers, body, exchange)

    def decode_line(self, line: bytes, decode: DecodeChat, exchange: Exchange) -> BatchAnswer | None:
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

    def _make_line_error(self, exchange: Exchange) -> ProviderError:
        text = "a line of the results is malformed"
        return self.errors.make_malformed_error(text, None, None, exchange)

    def _decode_page(self, data: dict[str, Any], headers: HeaderMap, exchange: Exchange) -> BatchPage:
        records = data.get("data")
        if not isinstance(records, list):
            raise make_malformed_error("it has no list of batches")
        if not all(isinstance(record, dict) for record in records):
            raise make_malformed_error("a batch is not an object")
        batches = tuple(self._decode_batch(record, headers, exchange) for record in records)
        more = data.get("has_more") is True and batches
        return BatchPage(batches, self._find_next(data, batches[-1]) if more else None)

    def _find_next(self, data: Mapping[str, Any], last: Batch) -> str | None:
        """Return the value that requests the next page."""
        return last.id

    def _decode_batch(self, data: dict[str, Any], headers: HeaderMap, exchange: Exchange) -> Batch:
        raise NotImplementedError

    def _decode_outcome(self, line: bytes, decode: DecodeChat, exchange: Exchange) -> Completion | OnymError:
        """Decode the completion or the error in a line of the results."""
        raise NotImplementedError


def _decode_identifier(data: dict[str, Any], headers: HeaderMap, exchange: Exchange) -> str:
    return require_identifier(data.get("id"))


def find_batch_api(dialect: str) -> BatchApi | None:
    """Return the batch API of an API format, None if it has none."""
    target = BATCH_APIS.get(dialect)
    if target is None:
        return None
    module, _, name = target.partition(":")
    return cast("BatchApi", getattr(import_module(module), name))


def require_identifier(value: Any) -> str:
    """Return a server's identifier if it is safe in a path, else raise MalformedResponseError."""
    if not isinstance(value, str) or _IDENTIFIER.fullmatch(value) is None:
        raise make_malformed_error("an identifier is missing or invalid")
    return value


def decode_error_message(error: Mapping[str, Any], exchange: Exchange) -> tuple[str, str | None]:
    """Return the printable message of an error record (": text" or "") and its code."""
    text, code = error.get("message"), error.get("code")
    shown = clean_message(text, exchange) if isinstance(text, str) else ""
    known = code if isinstance(code, str) and _IDENTIFIER.fullmatch(code) is not None else None
    return (f": {shown}" if shown else ""), clean_identifier(known, exchange)


def make_unanswered_error(ending: str, exchange: Exchange) -> ProviderError:
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
