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
from onym.errors import URIError
from onym.uri.diagnostics import Diagnostic
from onym.uri.llm import check

if TYPE_CHECKING:
    from onym.llm.providers import ProviderTable

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
      onym check ai://Factory.example/agent/x
      grep -ho 'llm://[^"]*' *.env | onym check -
    """
    session = ctx.find_object(Session)
    assert session is not None  # noqa: S101 - the group always makes one
    fatal = {"error", "warning"} if strict else {"error"}
    failed = False
    providers = user_providers()
    for subject in subjects(session, uris):
        found = _findings(subject.text, providers)
        failed |= any(each.severity in fatal for each in found)
        _show(session, subject, found)
    ctx.exit(exit_codes.CHECK_FAILED if failed else exit_codes.OK)


def _findings(text: str, providers: ProviderTable) -> tuple[Diagnostic, ...]:
    if text[:3].lower() == "ai:":
        return _ai_findings(text)
    return (*check(text).diagnostics, *provider_findings(text, providers))


def _ai_findings(text: str) -> tuple[Diagnostic, ...]:
    """The first thing that keeps an ai URI from having a canonical form; a note where it has another one."""
    from onym.uri.ai import AIURI

    try:
        fixed = str(AIURI.parse(text).target)
    except URIError as error:
        at = min(error.offset or 0, max(len(text) - 1, 0))
        message = f"{error.message} ({error.hint})" if error.hint else error.message
        return (
            Diagnostic(
                error.code,
                "error",
                message,
                clause=error.clause or "draft-sogomonian-ai-uri-scheme-01",
                component=error.component,
                start=at,
                end=at + 1,
            ),
        )
    if fixed == text.partition("#")[0]:
        return ()
    return (
        Diagnostic(
            "ai.non-canonical",
            "note",
            "this is read as its canonical form",
            clause="AIIP/HTTPS v1 3.4",
            component=None,
            start=0,
            end=len(text),
            fix=fixed,
        ),
    )


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
