"""`onym check`: what is wrong with a URI, where, by which rule, and what would be right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from onym.cli import exit_codes
from onym.cli._input import subjects, user_providers
from onym.cli._options import URI, json_option
from onym.cli._output import Session, Subject
from onym.cli._provider_check import provider_findings
from onym.cli._text import point, printable
from onym.uri.llm import check

if TYPE_CHECKING:
    from onym.uri.diagnostics import Diagnostic

__all__ = ["command"]


@click.command("check")
@click.argument("uris", nargs=-1, required=True, type=URI, metavar="URI...")
@click.option("--strict", is_flag=True, help="Fail on warnings too.")
@json_option
@click.pass_context
def command(ctx: click.Context, uris: tuple[str, ...], strict: bool) -> None:
    """Check URIs: every diagnostic with the place it is about, its code, its rule and the mended URI.

    What the draft says comes first; then, as warnings, what the provider and the model behind the URI are
    known to refuse, and words that look misspelt. Nothing is sent.

    A URI may also be the name of an endpoint, env:NAME, or - for the lines of standard input. Exit code
    1 when any has an error (with --strict, or a warning), else 0. With --json, one object for each URI
    on a line of its own.

    \b
    Examples:
      onym check 'llm://localhost:11434/llama3:8b?temp=0.2'
      onym check 'llm://openai/gpt-5?temp=0.2'          (that model takes no temp)
      grep -ho 'llm://[^"]*' *.env | onym check -
    """
    session = ctx.find_object(Session)
    assert session is not None  # noqa: S101 - the group always makes one
    fatal = {"error", "warning"} if strict else {"error"}
    failed = False
    providers = user_providers()
    for subject in subjects(session, uris):
        found = (*check(subject.text).diagnostics, *provider_findings(subject.text, providers))
        failed |= any(each.severity in fatal for each in found)
        _show(session, subject, found)
    ctx.exit(exit_codes.CHECK_FAILED if failed else exit_codes.OK)


def _show(session: Session, subject: Subject, found: tuple[Diagnostic, ...]) -> None:
    if session.as_json:
        session.line(_record(session, subject, found))
        return
    if not found:
        session.say(f"{session.paint('ok', 'good')}  {point(subject.text, None).text}")
    for each in found:
        _block(session, subject, each)


def _record(session: Session, subject: Subject, found: tuple[Diagnostic, ...]) -> dict[str, Any]:
    return {
        "uri": session.masked(subject.text),
        "ok": not any(each.severity == "error" for each in found),
        "diagnostics": [each.as_dict() for each in found],
    }


def _block(session: Session, subject: Subject, found: Diagnostic) -> None:
    pointed = point(subject.text, found.start, found.end)
    style = found.severity
    session.say(f"{session.paint(found.severity, style)}: {printable(found.message)}  [{found.clause}]")
    session.say(f"  {pointed.text}")
    if pointed.carets:
        session.say(f"  {session.paint(pointed.carets, 'caret')} {session.paint(found.code, 'dim')}")
    if found.fix is not None:
        session.say(f"  {session.paint('fix:', 'good')} {printable(session.masked(found.fix))}")
    session.say()
