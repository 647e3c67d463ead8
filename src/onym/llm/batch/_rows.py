"""Rows of the input and lines of the output, and their files: JSON Lines, standard input and Parquet.

Input is read lazily, in order and as often as needed. The output is written in the order of the input and
replaces the file only when it is complete. Parquet needs pyarrow (the extra `parquet`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b, file_digest
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from onym.common.files import replace_file
from onym.errors import OnymError, UsageError
from onym.llm.batch._storage import get_label, parse_index, read_lines, sort_lines
from onym.llm.parameters import list_sdk_names
from onym.llm.types import Completion, Usage
from onym.uri.parameters import WELL_KNOWN
from onym.uri.redact import redact

if TYPE_CHECKING:
    from onym.uri.secret import Secret

_NO_OVERRIDES: Final[Mapping[str, Any]] = MappingProxyType({})
_CHAT_URLS = frozenset({None, "/v1/chat/completions"})
#: characters of a message about an invalid row
_MAX_REMARK = 160
#: members of OpenAI's body, and the corresponding arguments of a call
_BODY_NAMES = {
    **{named: name for name, named in list_sdk_names("openai").items()},
    "max_completion_tokens": "max_tokens",
    "tools": "tools",
    "tool_choice": "tool_choice",
}


class Row(NamedTuple):
    """One request: its index in the input (from 0), its label, messages and arguments.

    `retries` is the row's own number, None for the run's. `error` tells why the row cannot be sent.
    """

    position: int
    id: str
    messages: Any = None
    overrides: Mapping[str, Any] = _NO_OVERRIDES
    retries: int | None = None
    error: OnymError | None = None


class _RowInput(msgspec.Struct, forbid_unknown_fields=True):
    """A row in Onym's format, or in the format of OpenAI's batch files.

    {"id": "a", "prompt": "…"}
    {"id": "b", "messages": […], "params": {"temp": 0.2}, "tools": […], "schema": {…}}
    {"custom_id": "c", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": […], …}}
    """

    id: str | int | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    params: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    schema: dict[str, Any] | None = None
    custom_id: str | int | None = None
    method: str | None = None
    url: str | None = None
    body: dict[str, Any] | None = None


_ROW_DECODER = msgspec.json.Decoder(_RowInput)


def decode_row(index: int, line: bytes, model: str) -> Row:
    """Decode a row. It never raises: `error` tells what is wrong with the row.

    `model` is the model of the endpoint; a body may name it, but no other model.
    """
    try:
        fields = _ROW_DECODER.decode(line)
        messages, overrides = (
            _decode_openai_row(fields, model) if fields.body is not None else _decode_own_row(fields)
        )
        retries = _pop_retries(overrides)
    except UsageError as error:
        return Row(index, get_label(index, line), error=error)
    except msgspec.ValidationError as error:
        # the message contains names of members and types, but no values
        text = f"the row is invalid: {redact(str(error))[:_MAX_REMARK]}"
        return Row(index, get_label(index, line), error=_make_row_error(text))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        hint = 'write one JSON object in each line, such as {"prompt": "Say hello."}'
        return Row(index, get_label(index, line), error=_make_row_error("the row is not JSON", hint=hint))
    name = fields.custom_id if fields.id is None else fields.id
    return Row(index, str(index if name is None else name), messages, overrides, retries)


def _make_row_error(text: str, *, hint: str | None = None) -> UsageError:
    return UsageError(text, code="usage.bad-row", hint=hint)


def _decode_own_row(fields: _RowInput) -> tuple[Any, dict[str, Any]]:
    if (fields.prompt is None) == (fields.messages is None):
        raise _make_row_error("a row needs either prompt or messages")
    overrides: dict[str, Any] = {}
    if fields.params:
        extra: dict[str, Any] = {}
        for name, value in fields.params.items():
            (overrides if name in WELL_KNOWN else extra)[name] = value
        if extra:
            overrides["extra"] = extra
    for name in ("tools", "tool_choice", "schema"):
        value = getattr(fields, name)
        if value is not None:
            overrides[name] = value
    return fields.messages if fields.prompt is None else fields.prompt, overrides


def _decode_openai_row(fields: _RowInput, model: str) -> tuple[Any, dict[str, Any]]:
    """Return OpenAI's batch line as arguments of a call; unknown members are passed through."""
    own_fields = (
        fields.prompt,
        fields.messages,
        fields.params,
        fields.tools,
        fields.tool_choice,
        fields.schema,
    )
    if any(member is not None for member in own_fields):
        raise _make_row_error("a row with body may only have custom_id, method and url beside it")
    if fields.url not in _CHAT_URLS:
        raise _make_row_error("the url of a row must be /v1/chat/completions")
    body = dict(fields.body or {})
    if body.pop("model", model) != model:
        raise _make_row_error(
            "the model in the body is not the model in the URI", hint="Remove model from the body."
        )
    messages = body.pop("messages", None)
    if not isinstance(messages, list):
        raise _make_row_error("the body has no messages")
    if body.pop("stream", False):
        raise _make_row_error("stream is not supported in a batch")
    overrides = {_BODY_NAMES[name]: body.pop(name) for name in _BODY_NAMES if name in body}
    if "response_format" in body:
        _decode_response_format(body.pop("response_format"), overrides)
    if body:
        overrides["extra"] = body
    return messages, overrides


def _decode_response_format(response_format: Any, overrides: dict[str, Any]) -> None:
    if not isinstance(response_format, dict):
        raise _make_row_error("response_format must be an object")
    kind, inner = response_format.get("type"), response_format.get("json_schema")
    if kind == "json_schema" and isinstance(inner, dict) and isinstance(inner.get("schema"), dict):
        overrides["schema"] = inner["schema"]
    elif kind in ("text", "json_object"):
        overrides["format"] = "json" if kind == "json_object" else "text"
    else:
        raise _make_row_error("response_format must be text, json_object, or json_schema with a schema")


def _pop_retries(overrides: dict[str, Any]) -> int | None:
    """Remove and return `retries` of the row, which the run uses instead of the client."""
    retries = overrides.pop("retries", None)
    if retries is not None and (type(retries) is not int or not 0 <= retries <= 100):
        raise _make_row_error("retries must be a whole number from 0 to 100")
    return retries


class Result(NamedTuple):
    """A line of the output with its line end, the index of its row, and its counts."""

    row: int
    line: bytes
    ok: bool
    input_tokens: int = 0
    output_tokens: int = 0
    retries: int = 0


class _AnswerLine(msgspec.Struct):
    index: int
    id: str
    status: str
    text: str
    finish_reason: str
    tool_calls: list[dict[str, Any]]
    usage: Usage
    model: str
    reasoning: str | None
    request_id: str | None
    attempts: int


class _FailureLine(msgspec.Struct):
    index: int
    id: str
    status: str
    error: dict[str, Any]
    attempts: int


_LINE_ENCODER = msgspec.json.Encoder()


def make_answer_result(index: int, name: str, completion: Completion, attempts: int) -> Result:
    """Return the result of an answered row."""
    usage = completion.usage
    row = _AnswerLine(
        index,
        name,
        "ok",
        completion.text,
        completion.finish_reason,
        [call.as_dict() for call in completion.tool_calls],
        usage,
        completion.model,
        completion.reasoning,
        completion.request_id,
        attempts,
    )
    counted = (usage.input_tokens or 0, usage.output_tokens or 0)
    return Result(index, _encode_line(row), True, *counted, attempts - 1)


def make_failed_result(
    index: int, name: str, error: OnymError, attempts: int, secrets: Iterable[Secret] = ()
) -> Result:
    """Return the result of a failed row; `attempts` is 0 if nothing was sent."""
    known = tuple(secrets)
    details = {
        key: redact(value, secrets=known) if isinstance(value, str) else value
        for key, value in error.as_dict().items()
    }
    return Result(
        index,
        _encode_line(_FailureLine(index, name, "error", details, attempts)),
        False,
        retries=max(0, attempts - 1),
    )


def _encode_line(row: msgspec.Struct) -> bytes:
    try:
        return _LINE_ENCODER.encode(row) + b"\n"
    except UnicodeEncodeError:
        # UTF-8 cannot encode a lone surrogate, so a question mark replaces it
        return _LINE_ENCODER.encode(_replace_surrogates(msgspec.to_builtins(row))) + b"\n"


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_replace_surrogates(name): _replace_surrogates(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_surrogates(item) for item in value]
    return value


#: bytes of one row
_MAX_ROW_SIZE: Final = 64 * 1024 * 1024
#: bytes that are copied at a time
_COPY_SIZE: Final = 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


class Source(Protocol):
    """An input: `iter_rows()` starts again from the first row (index 0) at each call."""

    fingerprint: str

    def iter_rows(self) -> Iterator[tuple[int, bytes]]:
        """Yield the index and the JSON of every row in order. Raises UsageError or OSError."""
        ...


class JSONLinesSource:
    """JSON Lines in a file that can be read again. Blank lines are skipped."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.fingerprint = compute_fingerprint(stream)

    def iter_rows(self) -> Iterator[tuple[int, bytes]]:
        """Yield every line that is not blank."""
        stream, index = self._stream, 0
        stream.seek(0)
        if stream.read(len(_BOM)) != _BOM:
            stream.seek(0)
        while line := stream.readline(_MAX_ROW_SIZE + 1):
            if len(line) > _MAX_ROW_SIZE:
                raise UsageError(
                    f"row {index} is longer than {_MAX_ROW_SIZE // 1024**2} MiB", code="usage.bad-input"
                )
            line = line.strip()
            if line:
                yield index, line
                index += 1


def compute_fingerprint(stream: IO[bytes]) -> str:
    """Return a digest of the content. It takes about a second per gigabyte."""
    stream.seek(0)
    return file_digest(stream, lambda: blake2b(digest_size=16)).hexdigest()  # type: ignore[arg-type,unused-ignore]


@contextmanager
def open_source(origin: Path | IO[bytes], folder: Path) -> Iterator[Source]:
    """Open a path (Parquet by its name, else JSON Lines) or a stream.

    A stream is first copied to a temporary file in `folder`, so that it can be read more than once. Raises
    UsageError if the file cannot be read.
    """
    if not isinstance(origin, Path):
        with TemporaryFile(dir=folder) as copy:
            shutil.copyfileobj(origin, copy, _COPY_SIZE)
            copy.flush()
            yield JSONLinesSource(copy)
        return
    try:
        stream = origin.open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {origin}: {error.strerror}", code="usage.input-file") from error
    with stream:
        if origin.suffix.lower() == ".parquet":
            yield ParquetSource(stream)
        else:
            yield JSONLinesSource(stream)


_TEXT_COLUMNS: Final = ("id", "custom_id", "prompt", "method", "url")
_NESTED_COLUMNS: Final = ("messages", "params", "tools", "tool_choice", "schema", "body")
#: rows in memory at a time
_ROWS_PER_BATCH: Final = 512
_USAGE_COLUMNS: Final = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
_JSON_COLUMNS: Final = ("tool_calls", "error")
#: the largest value of an integer column
_INT64_LIMIT: Final = 2**63
#: columns of an output and their types
_OUTPUT_COLUMNS: Final = {
    "index": "int64",
    "id": "string",
    "status": "string",
    "text": "string",
    "finish_reason": "string",
    "tool_calls": "string",
    **dict.fromkeys(_USAGE_COLUMNS, "int64"),
    "model": "string",
    "reasoning": "string",
    "request_id": "string",
    "error": "string",
    "attempts": "int64",
}


def require_pyarrow() -> Any:
    """Return the module pyarrow.parquet. Raises UsageError if it is not installed."""
    try:
        from pyarrow import parquet  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise UsageError(
            "Parquet files need the extra `parquet`",
            code="usage.missing-extra",
            hint="Run: pip install 'onym[parquet]'",
        ) from None
    return parquet


class ParquetSource:
    """Rows of a Parquet file."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.fingerprint = compute_fingerprint(stream)
        self._stream = stream
        self._parquet = require_pyarrow()

    def iter_rows(self) -> Iterator[tuple[int, bytes]]:
        """Yield every row as JSON. Raises UsageError for an invalid Parquet file."""
        for index, record in enumerate(
            _iter_records(self._parquet, self._stream, (*_TEXT_COLUMNS, *_NESTED_COLUMNS))
        ):
            row = {name: _decode_column(name, value) for name, value in record.items() if value is not None}
            yield index, msgspec.json.encode(row, enc_hook=str)


def _iter_records(parquet: Any, stream: Any, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    from pyarrow import ArrowException

    try:
        file = parquet.ParquetFile(stream)
        columns = [name for name in names if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=_ROWS_PER_BATCH, columns=columns):
            yield from batch.to_pylist()
    except (ArrowException, OSError) as error:
        raise UsageError("the Parquet file is invalid", code="usage.bad-input") from error


def _decode_column(name: str, value: Any) -> Any:
    if name in _NESTED_COLUMNS and isinstance(value, str):
        return msgspec.Raw(value.encode("utf-8", "replace"))
    return _drop_nulls(value)


def _drop_nulls(value: Any) -> Any:
    """Remove nulls: Arrow's structs have every member in every row, null if a row lacks it."""
    if isinstance(value, dict):
        return {name: _drop_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_drop_nulls(item) for item in value]
    return value


def write_parquet(lines: Iterable[bytes], out: IO[bytes]) -> None:
    """Write the lines of a journal as a Parquet file."""
    import pyarrow as pa

    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in _OUTPUT_COLUMNS.items()])
    remaining = iter(lines)
    with require_pyarrow().ParquetWriter(out, schema) as writer:
        while records := [_flatten_result(line) for line in islice(remaining, _ROWS_PER_BATCH)]:
            writer.write_batch(pa.RecordBatch.from_pylist(records, schema=schema))


def _flatten_result(line: bytes) -> dict[str, Any]:
    record = msgspec.json.decode(line)
    usage = record.pop("usage", {})
    record.update(
        {
            name: count if -_INT64_LIMIT <= (count or 0) < _INT64_LIMIT else None
            for name, count in usage.items()
        }
    )
    for name in _JSON_COLUMNS:
        if name in record:
            record[name] = msgspec.json.encode(record[name]).decode()
    return dict(record)


def restore_journal(output: Path, journal: Path) -> None:
    """Recreate the journal from which this output was made, completely or not at all."""
    with output.open("rb") as stream, replace_file(journal) as out:
        for record in _iter_records(require_pyarrow(), stream, _OUTPUT_COLUMNS):
            out.write(msgspec.json.encode(_unflatten_result(record)) + b"\n")


def _unflatten_result(record: dict[str, Any]) -> dict[str, Any]:
    usage = {name: record.pop(name, None) for name in _USAGE_COLUMNS}
    failed = record.get("status") == "error"
    for name in _JSON_COLUMNS:
        if record.get(name) is not None:
            record[name] = msgspec.Raw(record[name].encode())
    if failed:
        return {name: record.get(name) for name in ("index", "id", "status", "error", "attempts")}
    record.pop("error", None)
    return {**record, "usage": usage}


def is_parquet(path: Path) -> bool:
    """Whether the file's name is that of a Parquet file."""
    return path.suffix.lower() == ".parquet"


def write_output(journal: Path, output: Path, *, ordered: bool) -> None:
    """Write the output from a repaired journal, and then delete the journal. Raises OSError."""
    lines: Iterable[bytes] = read_lines(journal)
    if ordered:
        lines = sort_lines(lines, output.parent, key=parse_index)
    with replace_file(output) as out:
        if is_parquet(output):
            write_parquet(lines, out)
        else:
            out.writelines(lines)
    journal.unlink(missing_ok=True)
