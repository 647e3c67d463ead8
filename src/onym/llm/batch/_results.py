"""One line of the output, and what the run counts of it.

Every line begins with its index, so that lines are put in order without reading them whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from onym.llm.types import Completion, ToolCall, Usage
from onym.uri.redact import redact

if TYPE_CHECKING:
    from onym.errors import OnymError
    from onym.uri.secret import Secret

__all__ = ["Head", "Result", "answered", "failed", "index_of", "read_head"]

_START = b'{"index":'


class Result(NamedTuple):
    """A line of the output, line end included, the place of its row in the input, and its figures."""

    row: int
    line: bytes
    ok: bool
    input_tokens: int = 0
    output_tokens: int = 0
    retries: int = 0


class Head(msgspec.Struct):
    """What a run reads of a line that stands in a journal."""

    index: int
    status: Literal["ok", "error"]


class _Answer(msgspec.Struct):
    index: int
    id: str
    status: str
    text: str
    finish_reason: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage
    model: str
    reasoning: str | None
    request_id: str | None
    attempts: int


class _Failure(msgspec.Struct):
    index: int
    id: str
    status: str
    error: dict[str, Any]
    attempts: int


_ENCODER = msgspec.json.Encoder()
_HEAD = msgspec.json.Decoder(Head)


def answered(index: int, name: str, completion: Completion, attempts: int) -> Result:
    """The line of an answer."""
    usage = completion.usage
    row = _Answer(
        index,
        name,
        "ok",
        completion.text,
        completion.finish_reason,
        completion.tool_calls,
        usage,
        completion.model,
        completion.reasoning,
        completion.request_id,
        attempts,
    )
    counted = (usage.input_tokens or 0, usage.output_tokens or 0)
    return Result(index, _encode(row), True, *counted, attempts - 1)


def failed(index: int, name: str, error: OnymError, attempts: int, secrets: Iterable[Secret] = ()) -> Result:
    """The line of a row that failed for good; `attempts` is 0 where nothing was sent."""
    known = tuple(secrets)
    said = {
        key: redact(value, secrets=known) if isinstance(value, str) else value
        for key, value in error.as_dict().items()
    }
    return Result(
        index, _encode(_Failure(index, name, "error", said, attempts)), False, retries=max(0, attempts - 1)
    )


def read_head(line: bytes) -> Head | None:
    """Index and status of a whole, sound line; None for anything else. The line end may be missing."""
    if not line.startswith(_START):
        return None
    try:
        # the decoder looks at the octets of what it keeps alone
        line.decode()
        return _HEAD.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def index_of(line: bytes) -> int:
    """The index of a sound line."""
    return int(line[len(_START) : line.index(b",")])


def _encode(row: msgspec.Struct) -> bytes:
    try:
        return _ENCODER.encode(row) + b"\n"
    except UnicodeEncodeError:
        # a lone surrogate, which no UTF-8 can carry: a question mark stands in its place
        return _ENCODER.encode(_storable(msgspec.to_builtins(row))) + b"\n"


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_storable(name): _storable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    return value
