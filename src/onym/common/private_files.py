"""Files that hold secrets: readable only by their owner, replaced as a whole, with one writer at a time.

Every function raises CredentialError.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from onym.common import files, locks
from onym.common.platform import get_user_id, is_open_to_others, is_owned_by_user
from onym.errors import CredentialError


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
        return files.read_file(file, limit, follow_links=False, check=check)
    except OSError as error:
        raise _make_file_error(file, "read", error) from None


def write_private_file(file: Path, content: bytes) -> None:
    """Replace a file as a whole by one that only its owner may read."""
    try:
        files.write_file(file, content, mode=0o600)
    except OSError as error:
        raise _make_file_error(file, "written", error) from None


def remove_private_file(file: Path) -> None:
    """Remove the file, if it exists."""
    try:
        files.remove_file(file)
    except OSError as error:
        raise _make_file_error(file, "removed", error) from None


@contextmanager
def lock_private_file(file: Path) -> Iterator[None]:
    """Lock `file` until the block ends."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locks.lock_file(file))
        except OSError as error:
            raise _make_file_error(file, "locked", error) from None
        yield


def _require_owner_only(path: Path, state: os.stat_result, mode: str) -> None:
    if not is_owned_by_user(state):
        raise CredentialError(
            f"{path} belongs to another user",
            code="credential.owner",
            hint=f"run as its owner, or: chown {get_user_id()} {shlex.quote(str(path))}",
        )
    if is_open_to_others(state):
        raise CredentialError(
            f"other users may use {path} (mode {stat.S_IMODE(state.st_mode):04o})",
            code="credential.permissions",
            hint=f"chmod {mode} {shlex.quote(str(path))}",
        )


def _make_file_error(path: Path, action: str, error: OSError) -> CredentialError:
    code = "credential.missing" if error.errno == errno.ENOENT else "credential.unreadable"
    return CredentialError(f"{path} cannot be {action}: {error.strerror}", code=code)
