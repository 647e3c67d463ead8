"""Where rows come from: JSON Lines, standard input, Parquet. Read lazily, in order, as often as needed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b, file_digest
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, Protocol

from onym.errors import UsageError

__all__ = ["LineSource", "Source", "fingerprint", "opened"]

#: octets of one row
_LONGEST: Final = 64 * 1024 * 1024
#: octets that are copied at a time
_PIECE: Final = 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


class Source(Protocol):
    """An input: `rows()` gives each row's place (0 is the first) and its JSON, anew at each call."""

    fingerprint: str

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """Every row in order. Raises UsageError or OSError for what cannot be read."""
        ...


class LineSource:
    """JSON Lines in a file that can be read again. Blank lines are no rows."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.fingerprint = fingerprint(stream)

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """Every line that is not blank."""
        stream, index = self._stream, 0
        stream.seek(0)
        if stream.read(len(_BOM)) != _BOM:
            stream.seek(0)
        while line := stream.readline(_LONGEST + 1):
            if len(line) > _LONGEST:
                raise UsageError(
                    f"row {index} is longer than {_LONGEST // 1024**2} MiB", code="usage.bad-input"
                )
            line = line.strip()
            if line:
                yield index, line
                index += 1


def fingerprint(stream: IO[bytes]) -> str:
    """A digest of every octet: about a second for a gigabyte, little beside what it takes to answer it."""
    stream.seek(0)
    return file_digest(stream, lambda: blake2b(digest_size=16)).hexdigest()  # type: ignore[arg-type,unused-ignore]


@contextmanager
def opened(given: Path | IO[bytes], folder: Path) -> Iterator[Source]:
    """The source behind a path (Parquet by its name, else JSON Lines) or a stream.

    A stream is first copied to a temporary file in `folder`, so that it can be counted, checked and bound as
    a file is. Raises UsageError where the file cannot be read.
    """
    if not isinstance(given, Path):
        with TemporaryFile(dir=folder) as copy:
            shutil.copyfileobj(given, copy, _PIECE)
            copy.flush()
            yield LineSource(copy)
        return
    try:
        stream = given.open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {given}: {error.strerror}", code="usage.input-file") from error
    with stream:
        if given.suffix.lower() == ".parquet":
            from onym.llm.batch._parquet import ParquetSource  # pyarrow is an extra, and large

            yield ParquetSource(stream)
        else:
            yield LineSource(stream)
