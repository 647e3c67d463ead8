"""Batch APIs of providers: the interface, its data types and its lookup.

An API format with a batch API has an entry in `BATCH_APIS`. The functions are pure: they build requests and
decode responses, and do not send, wait or read a clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

from onym.errors import OnymError, ProviderError
from onym.llm.dialects import Exchange, HeaderMap
from onym.llm.dialects.codec import make_malformed_error, parse_count
from onym.llm.types import Completion
from onym.uri.redact import redact

#: a dialect's `decode_chat`
DecodeChat: TypeAlias = Callable[[int, HeaderMap, bytes, Exchange], Completion]
#: how a batch ended; `gone` is one that the provider does not know any more
Ending: TypeAlias = Literal["completed", "failed", "expired", "cancelled", "gone"]

#: dialects whose API takes batches, and where that is written down
BATCH_APIS: Final[Mapping[str, str]] = {
    "anthropic_messages": "onym.llm.dialects.anthropic_batches:MESSAGES",
    "openai_chat": "onym.llm.dialects.openai_batches:CHAT",
    "openai_responses": "onym.llm.dialects.openai_batches:RESPONSES",
}

#: an identifier becomes one segment of a path: nothing in it may mean another one
_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._:~-]{0,255}")
_MAX_MESSAGE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """One request: `path` is below the row's base path and may hold a query."""

    method: str
    path: str
    body: bytes = field(default=b"", repr=False)
    content_type: str | None = None
    accept: str = "application/json"


class BatchFault(NamedTuple):
    """Why a batch failed; `line` (1 is the first) is the request that it is about, None for all of them."""

    line: int | None
    error: ProviderError


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch as the provider sees it.

    `ending` is None as long as it goes on. `total` and `finished` count requests, `marker` is what the client
    called it, `created` seconds since the epoch, each None where the provider does not say. `files` are the
    identifiers of what holds the results, where these are files.
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
    """A page of the list of batches; `next` asks for the one after it, None at the end."""

    batches: tuple[Batch, ...]
    next: str | None = None


class BatchAnswer(NamedTuple):
    """One line of the results: the name that the request was given, and what came of it."""

    name: str
    outcome: Completion | OnymError


class BatchApi(Protocol):
    """A provider's batch API. Names of requests are of letters, digits and hyphens, 64 at most."""

    @property
    def most(self) -> int:
        """Requests that fit into one batch."""

    @property
    def marks(self) -> bool:
        """Whether the list of batches shows the client's marker."""

    def encode_line(self, name: str, body: bytes) -> bytes:
        """One request as it is sent; `body` is JSON."""

    def upload(self, marker: str, lines: Sequence[bytes]) -> BatchRequest | None:
        """What brings the requests there, None where creating does that."""

    def decode_upload(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> str:
        """The identifier of what was uploaded; raises ProviderError."""

    def create(self, marker: str, lines: Sequence[bytes], uploaded: str | None) -> BatchRequest:
        """What creates a batch, and has to be paid."""

    def retrieve(self, batch: str) -> BatchRequest:
        """What asks how a batch goes."""

    def cancel(self, batch: str) -> BatchRequest:
        """What ends a batch before its time."""

    def list(self, after: str | None) -> BatchRequest:
        """What asks for a page of the list of batches, the newest first."""

    def download(self, batch: Batch) -> tuple[BatchRequest, ...]:
        """What asks for the results of a batch that has ended."""

    def decode_batch(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> Batch:
        """A 2xx answer to `create`, `retrieve` or `cancel`; raises ProviderError."""

    def decode_list(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> BatchPage:
        """A 2xx answer to `list`; raises ProviderError."""

    def decode_error(self, status: int, headers: HeaderMap, body: bytes, exchange: Exchange) -> ProviderError:
        """The error of any other answer; returned, not raised."""

    def decode_line(self, line: bytes, decode: DecodeChat, exchange: Exchange) -> BatchAnswer | None:
        """A line of the results, None for one that is not whole or names no request."""


def find_batch_api(dialect: str) -> BatchApi | None:
    """The batch API of a dialect, None where it has none."""
    where = BATCH_APIS.get(dialect)
    if where is None:
        return None
    module, _, name = where.partition(":")
    return cast("BatchApi", getattr(import_module(module), name))


def require_identifier(value: Any) -> str:
    """An identifier of the server's that may stand in a path; raises MalformedResponseError."""
    if not isinstance(value, str) or _IDENTIFIER.fullmatch(value) is None:
        raise make_malformed_error("an identifier is none")
    return value


def parse_request_count(value: Any) -> int | None:
    """A count of requests, None for what is absent or none."""
    return parse_count(value)


def decode_error_message(error: Mapping[str, Any], exchange: Exchange) -> tuple[str, str | None]:
    """What a record says of a failure: a remark that is fit to print, and its typed code."""
    text, code = error.get("message"), error.get("code")
    shown = redact(text[: 8 * _MAX_MESSAGE], secrets=exchange.secrets) if isinstance(text, str) else ""
    shown = " ".join("".join(char if char.isprintable() else " " for char in shown).split())
    known = code if isinstance(code, str) and _IDENTIFIER.fullmatch(code) is not None else None
    if known is not None and any(secret.reveal() in known for secret in exchange.secrets):
        known = None
    return (f": {shown[:_MAX_MESSAGE]}" if shown else ""), known


def make_unanswered_error(ending: str, exchange: Exchange) -> ProviderError:
    """Why a request of a batch that ended so has no answer."""
    return ProviderError(
        _ENDING_MESSAGES.get(ending, _ENDING_MESSAGES["completed"]),
        code=f"provider.batch-{ending}" if ending != "completed" else "provider.malformed",
        endpoint=exchange.endpoint,
        hint="--retry-errors (retry_errors=True) asks it again",
    )


_ENDING_MESSAGES: Final[Mapping[str, str]] = {
    "completed": "the results of the batch hold no answer to this row",
    "failed": "the provider refused the batch",
    "expired": "the batch expired before this row was asked",
    "cancelled": "the batch was cancelled before this row was asked",
    "gone": "the provider knows this batch no more",
}
