"""`onym ai audit`: does a gateway's audit log hold, mend a torn end, begin a new file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from onym.cli import exit_codes
from onym.cli._options import json_option
from onym.cli._output import Session
from onym.cli._text import printable

if TYPE_CHECKING:
    from datetime import datetime

    from onym.ai.gateway.audit import Verdict

__all__ = ["command"]


@click.group("audit")
def command() -> None:
    """The audit log of a gateway: JSON lines, each tied to the one before by a hash. Each takes --json.

    \b
    Examples:
      onym ai audit verify audit.jsonl
      onym ai audit rotate audit.jsonl --keep-days 90
    """


@command.command("verify", short_help="Say whether a log holds, line by line.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--from", "begins", metavar="HASH", help="What the first line must continue.")
@click.option(
    "--expect", metavar="HASH", help="What the last line's hash must be: a cut-off end shows by it alone."
)
@json_option
@click.pass_obj
def verify(session: Session, /, files: tuple[str, ...], begins: str | None, expect: str | None) -> None:
    """Follow the chain of one log, or of its files, the oldest first. Exits with 1 where it breaks.

    \b
    Examples:
      onym ai audit verify audit.jsonl
      onym ai audit verify audit.jsonl.2026*Z audit.jsonl
    """
    session.command = "ai audit verify"
    from onym.ai.gateway.journal import verify_file  # late: each command imports what it needs

    previous, good = begins, True
    begun: frozenset[str] = frozenset()
    for file in files:
        verdict = verify_file(file, previous=previous, begun=begun)
        _tell(session, file, verdict)
        previous, begun, good = verdict.ends, verdict.begun, good and verdict.holds
    if begun:
        session.say(
            f"{_streams(len(begun))} no end here: cut off when a gateway was killed, or still under way"
        )
    if expect is not None and previous != expect.lower():
        good = False
        session.say(f"the last hash is {previous}, and another was expected: lines were cut off, or added")
    if not good:
        sys.exit(exit_codes.CHECK_FAILED)


def _tell(session: Session, file: str, verdict: Verdict) -> None:
    session.record(
        {
            "file": file,
            "holds": verdict.holds,
            "lines": verdict.lines,
            "begins": verdict.begins,
            "ends": verdict.ends,
            "first": verdict.first,
            "last": verdict.last,
            "torn": verdict.torn,
            "begun": sorted(verdict.begun),
            "faults": [{"line": each.line, "message": each.message} for each in verdict.faults],
        }
    )
    # the times are a file's, which says what it likes
    span = printable(f", {verdict.first} to {verdict.last}") if verdict.first else ""
    word = (
        session.paint("holds", "good", sys.stdout)
        if verdict.holds
        else session.paint("broken", "bad", sys.stdout)
    )
    session.say(f"{file}: {word}: {_lines(verdict.lines)}{span}")
    for each in verdict.faults:
        session.say(f"  line {each.line}: {each.message}")
    if verdict.torn:
        session.say(f"  the last line has no end ({verdict.torn} octets); onym ai audit mend {file}")
    if verdict.holds:
        session.say(f"  last hash: {verdict.ends}")


@command.command("mend", short_help="Take out a last line that was not written whole.")
@click.argument("file")
@json_option
@click.pass_obj
def mend(session: Session, /, file: str) -> None:
    """Take out a last line without an end, as a killed process leaves it, and say so in the log itself.

    \b
    Examples:
      onym ai audit mend audit.jsonl
    """
    session.command = "ai audit mend"
    from onym.ai.gateway.journal import mend as mended

    octets = mended(file, at=_now())
    session.record({"file": file, "octets": octets})
    session.say(f"{file}: {f'{octets} octets taken out' if octets else 'nothing to mend'}")


@command.command("rotate", short_help="Begin a new file; let go of files that are old enough.")
@click.argument("file")
@click.option(
    "--keep-days", type=click.FloatRange(0), metavar="DAYS", help="Remove rotated files older than that."
)
@json_option
@click.pass_obj
def rotate(session: Session, /, file: str, keep_days: float | None) -> None:
    """Give the log another name and begin a new file that continues its chain; a running gateway follows.

    \b
    Examples:
      onym ai audit rotate audit.jsonl
      onym ai audit rotate audit.jsonl --keep-days 90
    """
    session.command = "ai audit rotate"
    from onym.ai.gateway.rotation import retain
    from onym.ai.gateway.rotation import rotate as rotated

    at = _now()
    kept = rotated(file, at=at)
    gone = () if keep_days is None else retain(file, days=keep_days, at=at)
    session.record({"file": file, "kept": str(kept), "removed": [str(each) for each in gone]})
    session.say(f"{file}: what was in it is in {kept} now")
    for each in gone:
        session.say(f"removed {each}")


def _streams(count: int) -> str:
    return "1 stream has" if count == 1 else f"{count} streams have"


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


def _now() -> datetime:
    from datetime import UTC, datetime

    return datetime.now(UTC)
