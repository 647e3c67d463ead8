"""Files and locks between processes: limited reads, whole writes, and secrets that only their owner can read.

A write goes to a new file in the same folder, which takes the name when its content is on the disk. Readers
see the old content or the new content. The system releases a lock at the latest when its process ends.

Functions of private files raise CredentialError, all others OSError.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from typing import IO, Final

from onym.common import platform
from onym.common.platform import swap_folders
from onym.errors import CredentialError

_READ: Final = os.O_RDONLY | platform.NO_WAIT | platform.CLOSE_ON_EXEC | platform.BINARY
_CREATE: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | platform.NO_FOLLOW | platform.CLOSE_ON_EXEC | platform.BINARY
)


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
    descriptor = os.open(path, _READ if follow_links else _READ | platform.NO_FOLLOW)
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
    old_mode = _get_mode(path) if mode is None else None
    with _open_part(path, mode or (0o666 if old_mode is None else 0o600)) as (stream, part):
        yield stream
        _flush(stream)
        if old_mode is not None:
            part.chmod(old_mode)
        part.replace(path)
    platform.sync_folder(path.parent)


def create_file(path: Path, content: bytes, *, mode: int = 0o600) -> bool:
    """Create the file with its content in one step; False if it exists, and then it stays as it is."""
    with _open_part(path, mode) as (stream, part):
        stream.write(content)
        _flush(stream)
        try:
            os.link(part, path)
        except FileExistsError:
            return False
    platform.sync_folder(path.parent)
    return True


def remove_file(path: Path) -> None:
    """Remove the file durably, if it exists."""
    path.unlink(missing_ok=True)
    platform.sync_folder(path.parent)


def replace_folder(new: Path, folder: Path) -> None:
    """Let `new` take the place of `folder`, which may not exist, and remove the old content.

    On Linux, readers see the old or the new content at every moment; elsewhere the folder is missing for the
    moment between two renames. Both have to be on one file system.
    """
    if not folder.exists():
        new.rename(folder)
    elif swap_folders(new, folder):
        rmtree(new)
    else:
        old = folder.with_name(f".{folder.name}.{token_hex(8)}.old")
        folder.rename(old)
        try:
            new.rename(folder)
        except OSError:
            old.rename(folder)
            raise
        rmtree(old)
    platform.sync_folder(folder.parent)


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
    platform.sync_file(stream.fileno())
    stream.close()  # Windows does not rename an open file


def _get_mode(path: Path) -> int | None:
    with suppress(FileNotFoundError):
        return stat.S_IMODE(path.stat().st_mode)
    return None


_FLAGS: Final = os.O_RDWR | os.O_CREAT | platform.NO_FOLLOW | platform.CLOSE_ON_EXEC | platform.BINARY
#: seconds between two attempts
_POLL: Final = 0.005


@contextmanager
def lock_file(path: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Lock `path`, a file that exists only to be locked; it is created, and never removed.

    `on_wait` is called once if another process has the lock.
    """
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        if not try_lock(descriptor):
            if on_wait is not None:
                on_wait()
            wait_for_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; False if another process has the lock."""
    from filelock import lock_descriptor  # late: see above

    return lock_descriptor(descriptor, blocking=False)


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file until it is closed or unlocked, and wait while another process has the lock."""
    from filelock import lock_descriptor  # late: see above

    lock_descriptor(descriptor, poll_interval=_POLL)


def unlock(descriptor: int) -> None:
    """Release the lock of an open file."""
    from filelock import unlock_descriptor  # late: see above

    unlock_descriptor(descriptor)


def make_private_folder(folder: Path) -> None:
    """Create a folder for its owner only, if it does not exist."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _make_file_error(folder, "created", error) from None
    require_private_folder(folder)


def require_private_folder(folder: Path) -> None:
    """Raise CredentialError for a folder that does not exist or that other users may enter."""
    try:
        state = folder.stat()
    except OSError as error:
        raise _make_file_error(folder, "read", error) from None
    if not stat.S_ISDIR(state.st_mode):
        raise CredentialError(f"{folder} is not a folder", code="credential.unreadable")
    _require_owner_only(folder, state, "700")


def read_private_file(file: Path, limit: int) -> bytes:
    """The content of a file of at most `limit` bytes that only its owner may use.

    A symbolic link is not followed, because it could lead out of a folder that was checked.
    """

    def check(state: os.stat_result) -> None:
        _require_owner_only(file, state, "600")

    try:
        return read_file(file, limit, follow_links=False, check=check)
    except OSError as error:
        raise _make_file_error(file, "read", error) from None


def write_private_file(file: Path, content: bytes) -> None:
    """Replace a file as a whole by one that only its owner may read."""
    try:
        write_file(file, content, mode=0o600)
    except OSError as error:
        raise _make_file_error(file, "written", error) from None


def remove_private_file(file: Path) -> None:
    """Remove the file, if it exists."""
    try:
        remove_file(file)
    except OSError as error:
        raise _make_file_error(file, "removed", error) from None


@contextmanager
def lock_private_file(file: Path) -> Iterator[None]:
    """Lock `file` until the block ends."""
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_file(file))
        except OSError as error:
            raise _make_file_error(file, "locked", error) from None
        yield


def _require_owner_only(path: Path, state: os.stat_result, mode: str) -> None:
    if not platform.is_owned_by_user(state):
        raise CredentialError(
            f"{path} belongs to another user",
            code="credential.owner",
            hint=f"run as its owner, or: chown {platform.get_user_id()} {shlex.quote(str(path))}",
        )
    if platform.is_open_to_others(state):
        raise CredentialError(
            f"other users may use {path} (mode {stat.S_IMODE(state.st_mode):04o})",
            code="credential.permissions",
            hint=f"chmod {mode} {shlex.quote(str(path))}",
        )


def _make_file_error(path: Path, action: str, error: OSError) -> CredentialError:
    code = "credential.missing" if error.errno == errno.ENOENT else "credential.unreadable"
    return CredentialError(f"{path} cannot be {action}: {error.strerror}", code=code)
