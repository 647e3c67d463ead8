"""A verified result as it leaves the process: octets for a pipe, text for a terminal, JSON, files.

A pipe gets what the receipt is for, octet by octet. A terminal gets text alone, with what it would obey
written as escapes. JSON has `body` where it is UTF-8, and `body_base64` (RFC 4648 4) where it is not.
"""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final

from onym.cli._output import Session, is_terminal
from onym.cli._text import printable

if TYPE_CHECKING:
    from onym.ai.records import Result

__all__ = ["prepare", "record_of", "save", "write"]

_TEXTS: Final = frozenset({"application/json", "application/xml"})
_SUFFIXES: Final = ("+json", "+xml")


def prepare(folder: Path) -> None:
    """Make the folder that a result will be saved in, and try it. Raises OSError: better before the call."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder):
        pass


def save(folder: Path, result: Result) -> None:
    """Write body and receipt.jwt into `folder`, as `onym ai verify` reads them. Raises OSError."""
    (folder / "body").write_bytes(result.body)
    (folder / "receipt.jwt").write_text(result.token + "\n")


def write(session: Session, result: Result) -> None:
    """The body on standard output."""
    if not is_terminal(sys.stdout):
        _pour(result.body)
    elif _is_text(result):
        lines = result.body.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")
        for line in lines if result.body else ():
            session.say("\t".join(map(printable, line.removesuffix("\r").split("\t"))))
    elif result.body:
        kind = result.content_type or "of no known type"
        session.note(
            f"the result is {kind}, {len(result.body)} octets, and not for a terminal: a pipe gets it, "
            "and --save DIR keeps it"
        )


def record_of(result: Result) -> dict[str, Any]:
    """What `--json` says of a result."""
    receipt = result.receipt
    return {
        "status": result.status,
        "content_type": result.content_type,
        **_body(result.body),
        "replayed": result.replayed,
        "receipt": {
            "issuer": receipt.issuer,
            "subject": receipt.subject,
            "audience": receipt.audience,
            "issued": receipt.issued,
            "id": receipt.id,
            "token": result.token,
        },
        "checks": list(result.checks),
    }


def _is_text(result: Result) -> bool:
    kind = (result.content_type or "").partition(";")[0].strip().lower()
    return kind in _TEXTS or kind.startswith("text/") or kind.endswith(_SUFFIXES)


def _body(octets: bytes) -> dict[str, str | None]:
    try:
        return {"body": octets.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body": None, "body_base64": b64encode(octets).decode("ascii")}


def _pour(octets: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(octets)
    sys.stdout.flush()
    if octets and not octets.endswith(b"\n") and _one_place():
        # what follows on standard error begins a line of its own
        sys.stderr.write("\n")


def _one_place() -> bool:
    """Do standard output and standard error end in the same file or pipe?"""
    with suppress(OSError, ValueError):  # a stand-in for a stream has no descriptor
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    return False
