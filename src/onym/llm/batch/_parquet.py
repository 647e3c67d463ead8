"""Parquet in and out, by pyarrow (the extra `parquet`), in record batches of bounded size.

Columns are the members of a row. Those that nest may be structs and lists, or texts that hold JSON, which is
how they are written. Columns of other names are left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from onym.errors import UsageError
from onym.llm.batch._files import fresh, sync_folder
from onym.llm.batch._source import fingerprint

__all__ = ["ParquetSource", "require", "restore", "write_results"]

_TEXTS: Final = ("id", "custom_id", "prompt", "method", "url")
_NESTED: Final = ("messages", "params", "tools", "tool_choice", "schema", "body")
#: rows that are in memory at a time
_BATCH: Final = 512
_USAGE: Final = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
_AS_JSON: Final = ("tool_calls", "error")
#: what a column of whole numbers holds
_MOST: Final = 2**63
#: columns of an output, and their types
_COLUMNS: Final = {
    "index": "int64",
    "id": "string",
    "status": "string",
    "text": "string",
    "finish_reason": "string",
    "tool_calls": "string",
    **dict.fromkeys(_USAGE, "int64"),
    "model": "string",
    "reasoning": "string",
    "request_id": "string",
    "error": "string",
    "attempts": "int64",
}


def require() -> Any:
    """The module pyarrow.parquet. Raises UsageError where it is not installed."""
    try:
        from pyarrow import parquet  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise UsageError(
            "Parquet needs the extra `parquet`",
            code="usage.missing-extra",
            hint="pip install 'onym[parquet]'",
        ) from None
    return parquet


class ParquetSource:
    """Rows of a Parquet file."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.fingerprint = fingerprint(stream)
        self._stream = stream
        self._parquet = require()

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """Every row, as JSON. Raises UsageError for what is no Parquet file of requests."""
        for index, record in enumerate(_records(self._parquet, self._stream, (*_TEXTS, *_NESTED))):
            row = {name: _member(name, value) for name, value in record.items() if value is not None}
            yield index, msgspec.json.encode(row, enc_hook=str)


def _records(parquet: Any, stream: Any, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    from pyarrow import ArrowException

    try:
        file = parquet.ParquetFile(stream)
        columns = [name for name in names if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=_BATCH, columns=columns):
            yield from batch.to_pylist()
    except (ArrowException, OSError) as error:
        raise UsageError("the Parquet file cannot be read", code="usage.bad-input") from error


def _member(name: str, value: Any) -> Any:
    if name in _NESTED and isinstance(value, str):
        return msgspec.Raw(value.encode("utf-8", "replace"))
    return _without_nulls(value)


def _without_nulls(value: Any) -> Any:
    """Arrow's structs have every member in every row, null where a row has none."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def write_results(lines: Iterable[bytes], out: IO[bytes]) -> None:
    """The lines of a journal as a Parquet file."""
    import pyarrow as pa

    schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in _COLUMNS.items()])
    left = iter(lines)
    with require().ParquetWriter(out, schema) as writer:
        while records := [_flat(line) for line in islice(left, _BATCH)]:
            writer.write_batch(pa.RecordBatch.from_pylist(records, schema=schema))


def _flat(line: bytes) -> dict[str, Any]:
    record = msgspec.json.decode(line)
    usage = record.pop("usage", {})
    record.update({name: count if -_MOST <= (count or 0) < _MOST else None for name, count in usage.items()})
    for name in _AS_JSON:
        if name in record:
            record[name] = msgspec.json.encode(record[name]).decode()
    return dict(record)


def restore(output: Path, journal: Path) -> None:
    """The journal that this output was made of, there whole or not at all."""
    part = journal.with_name(journal.name + ".part")
    with output.open("rb") as stream, fresh(part) as out:
        for record in _records(require(), stream, _COLUMNS):
            out.write(msgspec.json.encode(_deep(record)) + b"\n")
        out.flush()
        os.fsync(out.fileno())
    part.replace(journal)
    sync_folder(journal.parent)


def _deep(record: dict[str, Any]) -> dict[str, Any]:
    usage = {name: record.pop(name, None) for name in _USAGE}
    failed = record.get("status") == "error"
    for name in _AS_JSON:
        if record.get(name) is not None:
            record[name] = msgspec.Raw(record[name].encode())
    if failed:
        return {name: record.get(name) for name in ("index", "id", "status", "error", "attempts")}
    record.pop("error", None)
    return {**record, "usage": usage}
