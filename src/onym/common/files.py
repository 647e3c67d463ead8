"""Files that are read within a limit, and written completely or not at all.

A write goes to a new file in the same folder, which takes the name when its content is on the disk. Readers
see the old content or the new content. Every function raises OSError.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, Final

from onym.common.platform import BINARY, CLOSE_ON_EXEC, NO_FOLLOW, NO_WAIT, sync_file, sync_folder

_READ: Final = os.O_RDONLY | NO_WAIT | CLOSE_ON_EXEC | BINARY
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | CLOSE_ON_EXEC | BINARY


def read_file(
    path: Path,
    limit: int,
    *,
    follow_links: bool = True,
    check: Callable[[os.stat_result], None] | None = None,
) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    A pipe or a device is not read, because reading it may never end. `check` sees the state of the open file
    before it is read, and may raise. Raises OSError with `errno.EFBIG` for a longer file and `errno.EINVAL`
    for one that is not regular; `strerror` is the reason in words.
    """
    # without O_NONBLOCK, opening a pipe waits for a writer
    descriptor = os.open(path, _READ if follow_links else _READ | NO_FOLLOW)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if check is not None:
            check(state)
        with open(descriptor, "rb", closefd=False) as stream:
            content = stream.read(limit + 1)
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"longer than {limit} bytes", str(path))
    return content


def write_file(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Replace the file by `content`; see `replace_file`."""
    with replace_file(path, mode=mode) as stream:
        stream.write(content)


@contextmanager
def replace_file(path: Path, *, mode: int | None = None) -> Iterator[IO[bytes]]:
    """A stream whose content replaces the file when the block ends; after an exception nothing changes.

    Without `mode` the file keeps its permissions, and a new file gets those that the umask allows. A symbolic
    link at `path` is replaced, not followed.
    """
    kept = _get_mode(path) if mode is None else None
    with _open_part(path, mode or (0o666 if kept is None else 0o600)) as (stream, part):
        yield stream
        _flush(stream)
        if kept is not None:
            part.chmod(kept)
        part.replace(path)
    sync_folder(path.parent)


def create_file(path: Path, content: bytes, *, mode: int = 0o600) -> bool:
    """Create the file with its content in one step; False if it exists, and then it stays as it is."""
    with _open_part(path, mode) as (stream, part):
        stream.write(content)
        _flush(stream)
        try:
            os.link(part, path)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


def remove_file(path: Path) -> None:
    """Remove the file durably, if it exists."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def _open_part(path: Path, mode: int) -> Iterator[tuple[IO[bytes], Path]]:
    part = path.with_name(f".{path.name}.{token_hex(8)}.part")
    descriptor = os.open(part, _CREATE, mode)
    try:
        with open(descriptor, "wb") as stream:  # noqa: PTH123 - a descriptor, not a path
            yield stream, part
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _flush(stream: IO[bytes]) -> None:
    stream.flush()
    sync_file(stream.fileno())
    stream.close()  # Windows does not rename an open file


def _get_mode(path: Path) -> int | None:
    with suppress(FileNotFoundError):
        return stat.S_IMODE(path.stat().st_mode)
    return None
