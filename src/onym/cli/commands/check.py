"""`onym check`: report each problem of a URI with its position, rule and correction.

After the grammar, `check` looks at the provider: is it known, and does its model support these parameters?
Nothing is sent, no name is resolved, and no key is read.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from difflib import get_close_matches
from shlex import quote
from typing import TYPE_CHECKING

import click

from onym.cli import exit_codes
from onym.cli._commands import exit_with, make_command, pass_session
from onym.cli._input import (
    URI_TYPE,
    find_provider,
    is_binary,
    is_folder,
    iter_files,
    iter_subjects,
    load_providers,
    read_file,
    read_text_file,
)
from onym.cli._output import Session, Subject, get_width, point_at, wrap_text
from onym.common.text import escape_unprintable
from onym.errors import OnymError, ParameterError, UnsupportedError, URIError, UsageError
from onym.uri.generic import split_uri
from onym.uri.llm import LLMURI, check
from onym.uri.llm_check import Diagnostic
from onym.uri.redact import redact

if TYPE_CHECKING:
    from onym.llm.providers import Provider, ProviderTable

_DRAFT = "draft-levy-llm-uri-scheme-00"
#: similarity from which a user's name counts as a misspelling of a provider's
_ALIKE_WORD = 0.75
_ALIKE_HOST = 0.9
#: a URI in a text, and the character after it
_URI_IN_TEXT = re.compile(r"(?<![\w+.-])(?:llm|ai)://[^\s\"'`<>(){}|\\^$*,;\u2026]+(?=(.?))", re.IGNORECASE)
#: characters that a template or a shell replaces, so that the text is not a complete URI
_TEMPLATE_MARKS = frozenset("{<$*\\|(\u2026")
_LONGEST_FILE = 8 * 1024 * 1024
_PAIR = re.compile("[^&]+")


def check_provider(text: str, providers: ProviderTable, today: date | None = None) -> tuple[Diagnostic, ...]:
    """Return warnings about misspelt names, rejected parameters and a model that ends.

    `today` defaults to the date of this computer's clock. Empty if `text` is not an llm URI.
    """
    try:
        uri = LLMURI.parse(text)
    except OnymError:
        return ()
    misspellings = tuple(_iter_misspellings(text, uri, providers))
    if misspellings:
        return misspellings
    ends = _iter_retirements(text, uri, providers, today or datetime.now(UTC).date())
    return (*ends, *_iter_rejected_parameters(text, uri, providers))


def find_misspellings(text: str, providers: ProviderTable) -> tuple[Diagnostic, ...]:
    """Return warnings about a misspelt provider, value of `api=` or parameter of the provider."""
    try:
        return tuple(_iter_misspellings(text, LLMURI.parse(text), providers))
    except OnymError:
        return ()


def _iter_misspellings(text: str, uri: LLMURI, providers: ProviderTable) -> Iterator[Diagnostic]:
    row = find_provider(uri, providers)
    meant = _guess_provider(uri, row, providers)
    if meant is None:
        yield from _iter_misspelled_names(text, uri, row)
        return
    message = f"no provider with this host is known; did you mean {meant}?"
    yield _make_warning(
        text, "near-provider", message, _find_host_span(text), f"{_DRAFT} 4.2.1", "host", better=meant
    )


def _iter_misspelled_names(text: str, uri: LLMURI, row: Provider) -> Iterator[Diagnostic]:
    """Yield warnings about names that this provider spells in another way."""
    from onym.llm.endpoint import choose_api

    try:
        choose_api(uri, row)
    except UnsupportedError as error:
        yield _diagnose_api(text, uri, row, error)
    else:
        yield from _iter_tool_limits(text, uri, row)
    own = _list_own_names(row)
    for name in uri.extra:
        close = [] if name in own else get_close_matches(name, own, n=1, cutoff=_ALIKE_WORD)
        if close and close[0] not in uri.params:
            message = f"{row.title} has a parameter {close[0]} but no {name}"
            span = _find_parameter_span(text, name)
            edit = (span[0], span[0] + len(text[slice(*span)].partition("=")[0]))
            yield _make_warning(text, "near-miss", message, span, row.source, "query", name, close[0], edit)


def _guess_provider(uri: LLMURI, row: Provider, providers: ProviderTable) -> str | None:
    """Return the alias or the host that is similar to an unknown one."""
    if row.hosts or row.host_suffixes or uri.port is not None or uri.host_type != "reg-name":
        return None
    host = uri.host.lower()
    if "." not in host:
        known, alike = list(providers.aliases()), _ALIKE_WORD
    else:
        known, alike = [host for one in providers for host in one.hosts], _ALIKE_HOST
    return next(iter(get_close_matches(host, known, n=1, cutoff=alike)), None)


def _list_own_names(row: Provider) -> list[str]:
    """Return the parameters that complete this provider's URL, in which a misspelling is possible."""
    names = {value.parameter for value in row.path_values.values()} | set(row.query)
    chosen = {api.when for api in row.apis.values() if api.when is not None}
    return sorted(names | chosen | ({"api"} if row.apis else set()))


def _diagnose_api(text: str, uri: LLMURI, row: Provider, error: UnsupportedError) -> Diagnostic:
    close = get_close_matches(str(uri.params["api"]), list(row.apis), n=1)
    start, end = _find_parameter_span(text, "api")
    _, _, written = text[start:end].partition("=")
    value = (end - len(written), end) if written else (start, end)
    message, better = f"{error.message}; {error.hint}", close[0] if close and written else None
    found = _make_warning(
        text, "no-api", message, value, error.source or row.source, "query", "api", better, value
    )
    # no call of this URI can work
    return found if error.model is None else found._replace(severity="error", fix=None)


def _iter_tool_limits(text: str, uri: LLMURI, row: Provider) -> Iterator[Diagnostic]:
    """Yield a warning if the URI selects an API that takes no tools for its model."""
    from onym.llm.endpoint import find_tool_limit

    reason = find_tool_limit(uri, row) if uri.params.get("api") == "chat" else None
    if reason is not None:
        message = f"calls with tools will be refused: {reason}; api=responses takes them"
        yield _make_warning(
            text, "no-tools", message, _find_parameter_span(text, "api"), row.source, "query", "api"
        )


def _iter_rejected_parameters(text: str, uri: LLMURI, providers: ProviderTable) -> Iterator[Diagnostic]:
    """Yield a warning for each parameter that the provider, the API format or the model does not support."""
    if not uri.params:
        return  # the API formats are not imported without need
    from onym.llm import dialects, models
    from onym.llm.endpoint import choose_api
    from onym.llm.mapping import ParameterLayer, map_parameters
    from onym.uri.parameters import WELL_KNOWN

    provider, _ = choose_api(uri, find_provider(uri, providers))
    values = {name: uri.params[name] for name in WELL_KNOWN if name in uri.params}
    used = {"api", *_list_own_names(provider)}
    passed = {name: value for name, value in uri.extra.items() if name not in used}
    try:
        mapped = map_parameters(
            [ParameterLayer(origin="uri", values=values, extra=passed)],
            provider=provider,
            profile=models.find_profile(provider.name, uri.model, provider.dialect),
            model=uri.model,
            wire=dialects.get_dialect(provider.dialect).parameters,
            on_unsupported="drop",
        )
    except ParameterError:
        return  # an invalid value, which the check of the grammar reports
    for note in mapped.notes:
        if note.action == "dropped" and note.source is not None:
            message = f"{provider.title} does not support {note.parameter} for this model: {note.reason}"
            span = _find_parameter_span(text, note.parameter)
            yield _make_warning(text, "refused", message, span, note.source, "query", note.parameter)


def _iter_retirements(text: str, uri: LLMURI, providers: ProviderTable, today: date) -> Iterator[Diagnostic]:
    """Yield a warning if the provider has announced the end of the model."""
    from onym.llm.models import describe_retirement, find_retirement

    retirement = find_retirement(find_provider(uri, providers).name, uri.model)
    message = describe_retirement(retirement, today)
    if retirement is None or message is None:
        return
    start = text.index("/", text.index("//") + 2) + 1
    span = (start, start + len(text[start:].partition("#")[0].partition("?")[0]))
    code = "retired" if retirement.ends <= today else "ends"
    yield _make_warning(text, code, message, span, retirement.source, "path", better=retirement.replacement)


def _find_host_span(text: str) -> tuple[int, int]:
    """Return the offsets of the host in the text."""
    parts = split_uri(text, rule="URI")
    host = parts.host or ""
    start = text.index("//") + 2 + (0 if parts.userinfo is None else len(parts.userinfo) + 1)
    return start, start + len(host)


def _find_parameter_span(text: str, name: str) -> tuple[int, int]:
    """Return the offsets of a parameter in `text`; its name is the first part before a dot."""
    from onym.uri.components import decode_component

    def has_name(pair: str) -> bool:
        written = decode_component(pair.partition("=")[0], component="query")
        return name in (written, written.partition(".")[0])

    pairs = _PAIR.finditer(text.partition("#")[0], text.index("?") + 1)
    return next(pair.span() for pair in pairs if has_name(pair[0]))


def _make_warning(
    text: str,
    code: str,
    message: str,
    span: tuple[int, int],
    clause: str,
    component: str,
    parameter: str | None = None,
    better: str | None = None,
    edit: tuple[int, int] | None = None,
) -> Diagnostic:
    start, end = edit or span
    return Diagnostic(
        f"llm.{code}",
        "warning",
        message,
        clause=clause,
        component=component,
        start=span[0],
        end=span[1],
        fix=None if better is None else redact(text[:start] + better + text[end:]),
        parameter=parameter,
    )


@make_command("check")
@click.argument("uris", nargs=-1, required=True, type=URI_TYPE, metavar="URI...")
@click.option("--strict", is_flag=True, help="Fail on warnings too.")
@click.option(
    "--files", is_flag=True, help="Check the URIs in files and folders; print only those with problems."
)
@pass_session
def check_command(session: Session, uris: tuple[str, ...], strict: bool, files: bool) -> None:
    """Check URIs and suggest corrections.

    Each diagnostic has a position, a code, a rule and, if possible, a corrected URI. After the rules of the
    draft, warnings report parameters that the provider or the model does not support, and names that look
    misspelt. Nothing is sent.

    URI can also be the name of an endpoint, env:NAME, or - for the lines of standard input. The exit code is
    1 if a URI has an error (with --strict also for a warning), otherwise 0. With --json, one object per URI
    and line. With --files, the arguments are files and folders, in which Onym looks for URIs. It skips
    templates such as llm://{host}/model, binary files and the data of version control.

    \b
    Examples:
      onym check 'llm://localhost:11434/llama3:8b?temp=0.2'
      onym check 'llm://openai/gpt-5.5?temp=0.2'      (not supported by the model)
      onym check ai://Factory.example/agent/x
      onym check --files .env config/*.yaml
    """
    fatal = {"error", "warning"} if strict else {"error"}
    failed, keys = False, 0
    if not files:
        _require_uris(session, uris)
    providers = load_providers()
    for place, subject in _iter_file_subjects(uris) if files else _iter_typed_subjects(session, uris):
        text = subject.text
        if text[:3].lower() == "ai:":
            diagnostics = _check_ai_uri(text)
        else:
            diagnostics = (*check(text).diagnostics, *check_provider(text, providers))
        wrong = any(diagnostic.severity in fatal for diagnostic in diagnostics)
        failed |= wrong
        keys += any(diagnostic.code == "llm.key-in-uri" for diagnostic in diagnostics)
        if place and not wrong:
            continue
        if place and not session.as_json:
            session.print_line(f"{escape_unprintable(place)}:")
        _print_diagnostics(session, subject, diagnostics, place)
    if files and keys:
        found = "a URI contains a key" if keys == 1 else f"{keys} URIs contain a key"
        command = f"onym redact --check {' '.join(map(quote, uris))}"
        session.print_note(f"{found}; find keys in files with: {command}")
    exit_with(exit_codes.CHECK_FAILED if failed else exit_codes.OK)


def _iter_typed_subjects(session: Session, arguments: Sequence[str]) -> Iterator[tuple[str, Subject]]:
    return (("", subject) for subject in iter_subjects(session, arguments))


def _iter_file_subjects(files: Sequence[str]) -> Iterator[tuple[str, Subject]]:
    """Yield the place FILE:LINE:COLUMN of each complete URI in the files, and its subject."""
    for name, listed in iter_files(files):
        if listed and is_binary(name):
            continue
        for number, line in enumerate(_read_file(name, listed).splitlines(), 1):
            for match in _URI_IN_TEXT.finditer(line):
                text = match[0].rstrip(".:!?]")
                if match[1] not in _TEMPLATE_MARKS and not match[0].endswith(("...", "://")):
                    yield f"{name}:{number}:{match.start() + 1}", Subject("-", text, typed=False)


def _read_file(name: str, listed: bool) -> str:
    """Return the text of a file. One that was not named, but found in a folder, need not be UTF-8."""
    if listed:
        return read_file(name, _LONGEST_FILE).decode("utf-8", "replace")
    return read_text_file(name, _LONGEST_FILE)


def _require_uris(session: Session, arguments: Sequence[str]) -> None:
    """Raise UsageError for an argument that is a file or a folder, and not the name of an endpoint."""
    for name in arguments:
        if ":" in name or not os.access(name, os.F_OK):
            continue
        from onym.llm.config import Config  # late: most calls need no configuration

        if name not in Config.load().endpoints:
            shown = escape_unprintable(session.mask(name))
            raise UsageError(
                f"{shown} is a {'folder' if is_folder(name) else 'file'}, not a URI",
                code="usage.command-line",
                hint=f"check the URIs in it with onym check --files {quote(shown)}",
            )


def _check_ai_uri(text: str) -> tuple[Diagnostic, ...]:
    """Return the first error of an ai URI, or a note if its canonical form is different."""
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
            "the URI is not in canonical form",
            clause="AIIP/HTTPS v1 3.4",
            component=None,
            start=0,
            end=len(text),
            fix=fixed,
        ),
    )


def _print_diagnostics(
    session: Session, subject: Subject, diagnostics: tuple[Diagnostic, ...], place: str
) -> None:
    if session.as_json:
        ok = not any(diagnostic.severity == "error" for diagnostic in diagnostics)
        records = [diagnostic.as_dict() for diagnostic in diagnostics]
        record = {"uri": session.mask(subject.text), "ok": ok, "diagnostics": records}
        session.print_json_line(({"place": place} if place else {}) | record)
        return
    if not diagnostics:
        session.print_line(f"{session.paint('ok', 'good')}  {point_at(subject.text, None).text}")
    for diagnostic in diagnostics:
        pointed = point_at(subject.text, diagnostic.start, diagnostic.end)
        severity = session.paint(diagnostic.severity, diagnostic.severity)
        said = f"{escape_unprintable(diagnostic.message)}  [{diagnostic.clause}]"
        said = wrap_text(said, len(diagnostic.severity) + 2, get_width(sys.stdout))
        session.print_line(f"{severity}: {said}")
        session.print_line(f"  {pointed.text}")
        if pointed.carets:
            code = session.paint(diagnostic.code, "dim")
            session.print_line(f"  {session.paint(pointed.carets, 'caret')} {code}")
        if diagnostic.fix is not None:
            fix = escape_unprintable(session.mask(diagnostic.fix))
            session.print_line(f"  {session.paint('fix:', 'good')} {fix}")
        session.print_line()
