"""Old parts of the audit log: it is rotated while a gateway runs, and let go of after a time."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from glob import escape
from pathlib import Path
from typing import Final

from onym.ai.gateway._log_file import MODE, held, is_named, stamp, tail_of, torn, write_line
from onym.ai.gateway.audit import Chain
from onym.errors import ConfigError

__all__ = ["retain", "rotate"]

_STAMP: Final = "%Y%m%dT%H%M%S%fZ"
#: what a filesystem without hard links says
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def rotate(path: str | Path, *, at: datetime) -> Path:
    """Give the log another name and begin a new one that continues its chain. Returns that name.

    A gateway that runs goes on in the new file. The log has its name at every moment: where the process is
    killed it is still the old file or already the new one, and the next rotation clears up. Raises
    ConfigError; needs a filesystem with hard links.
    """
    here = Path(path)
    with held(here) as file:
        chain = _end_of(file, here)
        kept = here.with_name(f"{here.name}.{at.astimezone(UTC).strftime(_STAMP)}")
        fresh = here.with_name(f"{here.name}.new")
        _clear(file, here, fresh)
        try:
            _begin(fresh, chain.line({"at": stamp(at), "event": "rotated", "from": kept.name}))
            _link(here, kept)
            _replace(fresh, here, kept)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        return kept


def retain(path: str | Path, *, days: float, at: datetime) -> tuple[Path, ...]:
    """Remove rotated files that were closed more than `days` ago; the log itself stays. Returns what went."""
    here = Path(path)
    oldest = at.astimezone(UTC) - timedelta(days=days)
    gone = []
    for each in sorted(here.parent.glob(f"{escape(here.name)}.*Z")):
        closed = _closed_at(here, each)
        if closed is not None and closed < oldest:
            each.unlink()
            gone.append(each)
    return tuple(gone)


def _end_of(file: int, path: Path) -> Chain:
    """What goes on behind the file's last line. Raises ConfigError where that has no end."""
    tail = tail_of(file, os.fstat(file).st_size)
    if tail.torn:
        raise torn(path, len(tail.torn))
    return Chain.after(tail.line)


def _clear(file: int, here: Path, fresh: Path) -> None:
    """Take away what a rotation that was killed has left: a new file, and a second name of the log."""
    fresh.unlink(missing_ok=True)
    for each in here.parent.glob(f"{escape(here.name)}.*Z"):
        if _closed_at(here, each) is not None and is_named(file, each):
            each.unlink()


def _begin(fresh: Path, line: bytes) -> None:
    """The new file with its first line, on the disk."""
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    try:
        write_line(file, line)
        os.fsync(file)
    finally:
        os.close(file)


def _link(here: Path, kept: Path) -> None:
    try:
        os.link(here, kept, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise ConfigError(
            f"{here}: it cannot be given a second name ({error.strerror})",
            code="audit.unusable",
            hint="rotation needs a filesystem with hard links, and a file that is not append-only",
        ) from None


def _replace(fresh: Path, here: Path, kept: Path) -> None:
    """The new file takes the name of the log, whose other name is on the disk before."""
    try:
        _sync_folder(here.parent)
        fresh.rename(here)
    except BaseException:
        kept.unlink(missing_ok=True)
        raise
    _sync_folder(here.parent)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _closed_at(here: Path, kept: Path) -> datetime | None:
    """When a file of this name was closed; None for one that is not ours."""
    try:
        return datetime.strptime(kept.name.removeprefix(f"{here.name}."), _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None
