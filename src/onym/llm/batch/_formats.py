"""Input and output files: JSON Lines, standard input and Parquet.

Input is read lazily, in order and as often as needed. The output is written in the order of the input and
replaces the file only when it is complete. Parquet needs pyarrow (the extra `parquet`); nested columns may be
structs and lists, or strings that contain JSON.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b, file_digest
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final, Protocol

import msgspec

from onym.common.files import replace_file
from onym.errors import UsageError
from onym.llm.batch._rows import parse_index
from onym.llm.batch._storage import read_lines, sort_lines

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
