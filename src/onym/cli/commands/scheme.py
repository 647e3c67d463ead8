"""`onym scheme`: check URI scheme definitions, and test their grammar."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli import exit_codes
from onym.cli._commands import OrderedGroup, exit_with, pass_session
from onym.cli._input import read_text_file
from onym.cli._output import Session, encode_json, escape_controls, replace_text_file, select_fields
from onym.common.text import escape_unprintable
from onym.errors import RegistryError

if TYPE_CHECKING:
    from onym.registry.abnf import Grammar
    from onym.registry.checks import Report

#: bytes of the largest file that is read
MAX_FILE: Final = 16_000_000
MAX_EXAMPLES: Final = 1_000
_FORMATS: Final = ("text", "json", "sarif")


start_option = click.option(
    "--start", metavar="RULE", help="The rule to start with. Default: the scheme's rule."
)


@click.group("scheme", cls=OrderedGroup)
def scheme_command() -> None:
    """Check URI scheme definitions and test their grammar. Nothing is sent.

    FILE is an Internet-Draft or RFC (text or XML), Markdown, a registration template, or ABNF;
    - is standard input.

    \b
    Examples:
      onym scheme check draft-levy-llm-uri-scheme-00.txt
      onym scheme check --format sarif *.abnf > scheme.sarif
      onym scheme match scheme.abnf 'llm://api.example.com/gpt-5.5'
      onym scheme diff old.abnf new.abnf
    """


@scheme_command.command("check", short_help="Check documents against RFC 7595 or RFC 4395.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--rules", "profile", type=click.Choice(["rfc4395", "rfc7595"]),
              help="The rules to check against. Default: by the template's labels, or rfc7595.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(_FORMATS), default="text", metavar="FORMAT",
              help="The format of the report: text, json or sarif.")  # fmt: skip
@click.option("--strict", is_flag=True, help="Fail on warnings too.")
@click.option("--questions", is_flag=True, help="List the questions that only a person can judge.")
@pass_session
def check_command(
    session: Session, files: tuple[str, ...], profile: str, form: str, strict: bool, questions: bool
) -> None:
    """Check documents against RFC 7595 or RFC 4395.

    About thirty checks of names, templates, citations, grammar, examples and security report the clause, the
    line, the evidence and a correction, the most important first. An error blocks registration, a warning
    needs an answer, a hint is a heuristic. The report lists every check that could not run, with the reason.
    With --questions it also has the questions that only a person can judge, which are the same for each text.

    The exit code is 0 if no file has an error, 1 if one has an error (with --strict also for a warning), 2 if
    a file cannot be opened, and 11 if a file has none of these formats. A grammar that cannot be decided (it
    recurses, uses prose or undefined rules, is too large, or does not name the scheme's rule) is a warning
    below "not checked", so that exit code 0 does not mean that everything was decided.

    --json and --format json write one object per file and line, --format sarif one SARIF 2.1.0 log for all
    files.

    \b
    Examples:
      onym scheme check draft.txt
      onym scheme check --rules rfc4395 template.txt
      onym scheme check --format sarif draft.xml > draft.sarif
    """
    from onym.registry.checks import Level, to_sarif  # late: the checks take 150 ms to load

    as_json = session.as_json or form == "json"
    fatal = (Level.ERROR, Level.WARNING) if strict else (Level.ERROR,)
    failed = False
    logs: list[dict[str, Any]] = []
    for at, file in enumerate(files):
        report, text, reason = _check_file(file, profile)
        report = report if questions else report.without_questions()
        failed |= any(report.of(level) for level in fatal)
        if form == "sarif":
            logs.append(to_sarif(report, text))
        elif as_json:
            session.print_json_line(_build_report_record(report))
        else:
            _print_report(session, report, first=at == 0)
        if reason is not None:
            rules = "--rules rfc7595 checks by the rules of today"
            session.print_note(f"{file} was checked against RFC 4395: {escape_unprintable(reason)}; {rules}")
    if form == "sarif":
        # one log with a run for each file
        log = {**logs[0], "runs": [run for log in logs for run in log["runs"]]}
        sys.stdout.write(encode_json(log, indent=2) + "\n")
    exit_with(exit_codes.CHECK_FAILED if failed else exit_codes.OK)


def _check_file(file: str, profile: str | None) -> tuple[Report, str, str | None]:
    """Return the report, the text, and the reason if the text itself chose the rules of 2006."""
    from datetime import UTC, datetime

    from onym.registry.checks import check, load_document
    from onym.registry.documents import profile_reason

    text = _read_text(file)
    today = datetime.now(UTC).date()
    try:
        document = load_document(text, source=file)
    except RegistryError as error:
        error.message = f"{file}: {error.message}"
        raise
    report = check(document, profile=profile, today=today, source=file)
    old = profile is None and report.profile == "rfc4395" and document.templates
    return report, text, profile_reason(document.templates[0]) if old else None


def _print_report(session: Session, report: Report, *, first: bool) -> None:
    from onym.registry.checks import as_text

    if not first:
        session.print_line()
    colour = session.has_colour(sys.stdout)
    text = as_text(report, colour=colour)
    # the library's own colours stay; text of the document was made printable when it was formatted
    session.print_line(text if colour else escape_controls(text))


def _build_report_record(report: Report) -> dict[str, Any]:
    return {
        **select_fields(report, "source", "profile", "scheme", "ok"),
        "counts": report.counts,
        "ran": list(report.ran),
        "findings": [finding.as_dict() for finding in report.findings],
    }


@scheme_command.command("match", short_help="Test whether strings match a grammar.")
@click.argument("file")
@click.argument("strings", nargs=-1, required=True, metavar="STRING...")
@start_option
@pass_session
def match_command(session: Session, file: str, strings: tuple[str, ...], start: str | None) -> None:
    """Test whether strings match the grammar of FILE and the rules of other RFCs that it uses, byte for byte.

    The exit code is 0 if every string matches, and 1 if one does not.
    """
    from onym.registry.abnf import build_matcher

    grammar, rule = _load_grammar(file, start)
    match = build_matcher(grammar, rule)
    all_match = True
    for string in strings:
        matches = match(os.fsencode(string))
        all_match &= matches
        if session.as_json:
            session.print_json_line({"string": string, "start": rule, "matches": matches})
        else:
            word = session.paint("yes", "good") if matches else session.paint("no ", "bad")
            session.print_line(f"{word}  {escape_unprintable(string)}")
    exit_with(exit_codes.OK if all_match else exit_codes.CHECK_FAILED)


@scheme_command.command("diff", short_help="Compare the strings that two grammars match.")
@click.argument("file_a", metavar="A")
@click.argument("file_b", metavar="B")
@click.option("--start", metavar="RULE", help="The rule of A to start with (and of B, without --start-b).")
@click.option("--start-b", metavar="RULE", help="The rule of B to start with.")
@pass_session
def diff_command(session: Session, file_a: str, file_b: str, start: str | None, start_b: str | None) -> None:
    """Compare the strings that two grammars match, and show the shortest string that only one matches.

    The exit code is 0 if the grammars are equal, and 1 if they differ.
    """
    from onym.registry.abnf import compare

    (grammar_a, rule_a), (grammar_b, rule_b) = (
        _load_grammar(file_a, start),
        _load_grammar(file_b, start_b or start),
    )
    comparison = compare(grammar_a, rule_a, grammar_b, rule_b)
    relation, strings = comparison.relation.value, select_fields(comparison, "only_a", "only_b", "both")
    rules = {"start_a": rule_a, "start_b": rule_b}
    session.print_record({"a": file_a, "b": file_b, "relation": relation, **rules, **strings})
    words = {
        "equal": "equal: A and B match the same strings",
        "subset": "subset: B matches more strings than A",
        "superset": "superset: A matches more strings than B",
        "overlap": "overlap: A and B each match strings that the other does not",
        "disjoint": "disjoint: no string matches both",
    }
    session.print_line(words[relation])
    for side in ("only_a", "only_b"):
        if strings[side] is not None:
            session.print_line(f"  only {side[-1].upper()}: {escape_unprintable(strings[side])}")
    exit_with(exit_codes.OK if relation == "equal" else exit_codes.CHECK_FAILED)


@scheme_command.command("examples", short_help="Generate strings that match a grammar.")
@click.argument("file")
@click.option("-n", "count", type=click.IntRange(1, MAX_EXAMPLES), metavar="N", default=10,
              help="The number of strings (default 10).")  # fmt: skip
@click.option("--seed", type=int, metavar="N", default=0, help="The seed of the random choice (default 0).")
@start_option
@pass_session
def examples_command(session: Session, file: str, count: int, seed: int, start: str | None) -> None:
    """Generate strings that match the grammar of FILE. The same seed gives the same strings."""
    from onym.registry.abnf import generate_examples

    grammar, rule = _load_grammar(file, start)
    strings = generate_examples(grammar, rule, count, seed=seed)
    session.print_record({"start": rule, "seed": seed, "examples": strings})
    if not strings:
        session.print_note(f"{rule} matches no UTF-8 text of at most 2,048 bytes")
    for string in strings:
        session.print_line(escape_unprintable(string))


@scheme_command.command("railroad", short_help="Draw a grammar as a railroad diagram (SVG).")
@click.argument("file")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
              help="Write the picture to FILE.")  # fmt: skip
@start_option
@pass_session
def railroad_command(session: Session, file: str, output: Path | None, start: str | None) -> None:
    """Draw a grammar as a railroad diagram (SVG) of the rules that the scheme uses."""
    from onym.registry.abnf import render_railroad

    grammar, rule = _load_grammar(file, start)
    picture = render_railroad(grammar, rule)
    if output is None:
        session.print_record({"start": rule, "svg": picture})
        session.print_line(picture)
        return
    with replace_text_file(output) as write:
        write(picture)
    session.print_record({"start": rule, "file": str(output)})
    session.print_line(f"wrote {escape_unprintable(str(output))}")


def _read_text(file: str) -> str:
    text = read_text_file(file, MAX_FILE, code="usage.file")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _load_grammar(file: str, start: str | None) -> tuple[Grammar, str]:
    """Return the grammar of a file with its imports, and the rule to start with."""
    from onym.registry.checks import load_document, load_grammar

    return load_grammar(load_document(_read_text(file), source=file), start)
