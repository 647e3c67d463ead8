"""Which rows are at the provider, in which batches: a file beside the output, durable before each step.

A line is appended before a batch is created (its rows, and the marker by which it will be known), after it
was created (its identifier), and when all of its results are durable. What stands between the first and the
second of these lines after a crash has to be looked for at the provider.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import msgspec

from onym.errors import UsageError
from onym.llm.batch._files import APPEND, sync, sync_folder, write_all
from onym.llm.batch._provider_rows import SEPARATOR

__all__ = ["Chunk", "Ledger", "Rows", "ledger_path", "ranges", "refuse_open"]


class Rows:
    """Rows as rising ranges, both ends included."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._ranges = ranges

    def __contains__(self, index: int) -> bool:
        at = bisect_right(self._ranges, (index, index))
        # the range that begins at this row, or the one before it
        return any(first <= index <= last for first, last in self._ranges[max(0, at - 1) : at + 1])


@dataclass(slots=True)
class Chunk:
    """The rows of one batch. `token` names them at the provider, `rows` are ranges, both ends included.

    `batch` is the batch's identifier, None before it is known; `maybe` are batches of which one may be it.
    `at` is when it was about to be created, in seconds since the epoch.
    """

    token: str
    rows: tuple[tuple[int, int], ...]
    at: float
    batch: str | None = None
    maybe: tuple[str, ...] = ()
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = sum(last - first + 1 for first, last in self.rows)

    def __contains__(self, index: int) -> bool:
        return index in Rows(self.rows)

    def indexes(self) -> Iterator[int]:
        """The rows in order."""
        for first, last in self.rows:
            yield from range(first, last + 1)

    def name(self, index: int) -> str:
        """What the row is called at the provider."""
        return f"{self.token}{SEPARATOR}{index}"

    def index(self, name: str) -> int | None:
        """The row that is called so, None for a name that was not given."""
        token, _, digits = name.partition(SEPARATOR)
        if token != self.token or not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
            return None
        index = int(digits)
        return index if index in self and self.name(index) == name else None


class _Entry(msgspec.Struct, omit_defaults=True):
    chunk: str
    rows: tuple[tuple[int, int], ...] | None = None
    at: float | None = None
    batch: str | None = None
    maybe: tuple[str, ...] | None = None
    end: Literal["done", "dropped"] | None = None


_ENTRY: Final = msgspec.json.Decoder(_Entry)


class Ledger:
    """The file, open for a run. `chunks` are those whose results are not all there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chunks: dict[str, Chunk] = {}
        whole = 0
        for line, entry in _entries(path):
            whole += len(line)
            _apply(self.chunks, entry)
        self._descriptor = os.open(path, APPEND, 0o666)
        # the end of a line that was cut: it had not been acted on
        os.ftruncate(self._descriptor, whole)
        sync_folder(path.parent)

    def rows(self) -> Rows:
        """The rows of all of them."""
        return Rows(sorted(each for chunk in self.chunks.values() for each in chunk.rows))

    def plan(self, token: str, rows: Iterable[int], at: float) -> Chunk:
        """A batch is about to be created."""
        entry = _Entry(chunk=token, rows=tuple(ranges(rows)), at=at)
        self._append(entry)
        return self.chunks[token]

    def created(self, chunk: Chunk, batch: str) -> None:
        """It was."""
        self._append(_Entry(chunk=chunk.token, batch=batch))

    def maybe(self, chunk: Chunk, batches: tuple[str, ...]) -> None:
        """It may have been: it is one of these, or none."""
        self._append(_Entry(chunk=chunk.token, maybe=batches))

    def end(self, chunk: Chunk, how: Literal["done", "dropped"]) -> None:
        """All results are durable, or there is no such batch."""
        self._append(_Entry(chunk=chunk.token, end=how))

    def close(self) -> None:
        """Close the file, and drop it where nothing is open any more."""
        os.close(self._descriptor)
        if not self.chunks:
            self.path.unlink(missing_ok=True)

    def _append(self, entry: _Entry) -> None:
        write_all(self._descriptor, msgspec.json.encode(entry) + b"\n")
        sync(self._descriptor)
        _apply(self.chunks, entry)


def ledger_path(output: Path) -> Path:
    """Where the ledger of an output is."""
    return output.with_name(output.name + ".provider")


def refuse_open(output: Path) -> None:
    """Raise UsageError where batches of this output are at the provider: their rows would be paid twice."""
    chunks: dict[str, Chunk] = {}
    for _, entry in _entries(ledger_path(output)):
        _apply(chunks, entry)
    if chunks:
        raise UsageError(
            f"{sum(chunk.count for chunk in chunks.values())} rows of this output are in batches at the "
            "provider, which answers them and has to be paid",
            code="usage.batch-at-provider",
            hint="go on with --provider-batch, or end them with --provider-batch --cancel first",
        )


def ranges(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """Rising numbers as ranges, both ends included."""
    found: list[tuple[int, int]] = []
    for index in indexes:
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found


def _entries(path: Path) -> Iterator[tuple[bytes, _Entry]]:
    """The whole lines. Raises UsageError where one before the last cannot be read."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return
    for line in lines:
        if not line.endswith(b"\n"):
            return
        try:
            yield line, _ENTRY.decode(line)
        except msgspec.MsgspecError:
            raise UsageError(
                f"{path} is damaged: it says which rows the provider has to be paid for",
                code="usage.batch-ledger",
                hint="mend it, or remove it once no batch of this output is left at the provider",
            ) from None


def _apply(chunks: dict[str, Chunk], entry: _Entry) -> None:
    if entry.rows is not None:
        chunks[entry.chunk] = Chunk(entry.chunk, entry.rows, entry.at or 0.0)
        return
    chunk = chunks.get(entry.chunk)
    if chunk is None:
        return
    if entry.end is not None:
        del chunks[entry.chunk]
    elif entry.batch is not None:
        chunk.batch, chunk.maybe = entry.batch, ()
    elif entry.maybe is not None:
        chunk.maybe = entry.maybe
