"""Write a text file that is replaced only when it is complete."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import IO, Self

from onym.errors import UsageError


class AtomicFile:
    """Text written beside `path` and moved there when the block ends well; else nothing changes.

    An existing file keeps its permissions, a symbolic link its target is replaced and the link stays.
    What is no regular file (a terminal, a FIFO) is written to directly. Raises UsageError where the
    folder cannot be written to.
    """

    def __init__(self, path: Path) -> None:
        self._target = path.resolve() if path.is_symlink() else path
        self._direct = path.exists() and not path.is_file()
        self._stream = self._open_stream()

    def _open_stream(self) -> IO[str]:
        try:
            if self._direct:
                return self._target.open("w", encoding="utf-8", errors="backslashreplace")
            return NamedTemporaryFile(
                "w",
                encoding="utf-8",
                errors="backslashreplace",
                dir=self._target.parent,
                prefix=f".{self._target.name}.",
                suffix=".part",
                delete=False,
            )
        except OSError as error:
            raise UsageError(
                f"cannot write {self._target}: {error.strerror}", code="usage.output-file"
            ) from error

    def write(self, text: str) -> None:
        """Add `text`; nobody sees it before the end."""
        self._stream.write(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._direct:
            self._stream.close()
        elif kind is None:
            self._commit()
        else:
            self._discard()

    def _commit(self) -> None:
        try:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            Path(self._stream.name).chmod(self._get_mode())
            Path(self._stream.name).replace(self._target)
        except BaseException:
            self._discard()
            raise

    def _discard(self) -> None:
        with suppress(OSError):
            self._stream.close()
        Path(self._stream.name).unlink(missing_ok=True)

    def _get_mode(self) -> int:
        """The permissions of the file that is replaced, else what the umask leaves of 0666."""
        with suppress(OSError):
            return self._target.stat().st_mode & 0o7777
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
