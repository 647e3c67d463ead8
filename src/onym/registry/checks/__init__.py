"""The scheme checker: check a scheme's document against RFC 4395 or RFC 7595.

    from onym.registry.checks import as_text, check
    from onym.registry.documents import read_document

    report = check(read_document(text))
    print(as_text(report))

The checks use no file, clock or network. The table `CHECKS` lists them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from typing import Any, Final

from onym import __version__
from onym.errors import GrammarError
from onym.registry.abnf import Grammar, find_unused_rules, parse_blocks, resolve
from onym.registry.checks import _citations, _names, _prose, _syntax, _template, context
from onym.registry.checks._grammar import SchemeGrammar, read_syntax
from onym.registry.checks.context import UNCHECKED, Finding, Level, ReferenceData, Report, load_builtin
from onym.registry.documents import find_value_blocks, profile_of_template, read_document
from onym.registry.documents.types import Block, Document, DocumentKind, Template, TemplateValue
from onym.registry.records import Entry, Request, RequestKind, Status
from onym.registry.registries import PROFILES, Profile, clean_name, get_profile
from onym.uri.components import PATH

__all__ = [
    "CHECKS",
    "MAX_TEMPLATES",
    "Finding",
    "Level",
    "ReferenceData",
    "Report",
    "as_text",
    "check",
    "check_entries",
    "check_request",
    "choose_profile",
    "format_summary",
    "to_sarif",
]

_COMMENT: Final = re.compile(r"(?:[ \t]*(?:;[^\n]*)?\r?\n)*")
_RULE: Final = re.compile(r"[ \t]*[A-Za-z][A-Za-z0-9-]*[ \t]*(?:\r?\n[ \t]+)?=/?[ \t]*(?:\r?\n[ \t]+)?[^\s=]")
_NOT_ABNF: Final = re.compile(
    r"^(?:[ \t]*(?:Abstract|Introduction|IANA Considerations)\b|#|[A-Z][\w /-]{2,60}:[ \t])",
    re.IGNORECASE | re.MULTILINE,
)


def load_document(text: str, *, source: str = "-") -> Document:
    """Return the document in `text`. A text that is only ABNF becomes a document with one block.

    Raises RegistryError as `read_document` does: if the text cannot be read, or is too large.
    """
    if _is_grammar(text):
        return Document(kind=DocumentKind.TEMPLATE, text=text, blocks=(Block(text=text, line=1),))
    return read_document(text, source=source, need_template=False)


def is_bare_grammar(document: Document) -> bool:
    """Return whether the document is only a grammar; prose with ABNF is not."""
    some = document.sections or document.templates or document.name
    return bool(document.blocks) and not some and _is_grammar(document.text)


def _is_grammar(text: str) -> bool:
    comments = _COMMENT.match(text)
    first_rule = _RULE.match(text, comments.end() if comments else 0)
    return first_rule is not None and _NOT_ABNF.search(text) is None


def load_grammar(document: Document, start: str | None = None) -> tuple[Grammar, str]:
    """Return the document's grammar with its imports resolved, and the name of the start rule.

    Raises GrammarError if ABNF is missing or not valid, or if no start rule can be chosen, and
    UnknownEntryError if the rule `start` does not exist.
    """
    if not document.blocks:
        raise GrammarError(
            "the text has no ABNF",
            code="abnf.none",
            hint="write the grammar as ABNF (RFC 5234), each rule as `name = elements`",
        )
    name = context.lower_ascii(clean_name(document.templates[0].text("name"))) if document.templates else ""
    grammar = resolve(parse_blocks(document.blocks))
    if start is not None:
        return grammar, grammar.rule(start).name
    syntax = SchemeGrammar(name, written=grammar)
    if syntax.start is not None:
        return grammar, grammar.rule(syntax.start).name
    unused = find_unused_rules(grammar)
    if len(unused) == 1:
        return grammar, unused[0]
    if grammar.problems and not unused:
        raise grammar.problems[0]
    raise GrammarError(
        "the start rule is not clear",
        code="abnf.no-start",
        hint=f"name it with start (--start): {', '.join(unused[:8]) or 'the rules form a circle'}",
    )


_E, _W, _H = Level.ERROR, Level.WARNING, Level.HINT
#: the profiles of parameters and namespaces, whose templates have no syntax
_OTHER_PROFILES: Final = ("specification-required", "expert-review")


def _make_check(
    identifier: str,
    title: str,
    old: str | None,
    new: str,
    level: Level,
    run: Callable[[context.CheckContext], context.Findings],
    other: str | None = None,
) -> context.Check:
    """Return a check; `old` is its clause in RFC 4395, `new` in RFC 7595, `other` in the other profiles."""
    clauses = {}
    if old:
        clauses["rfc4395"] = old if old.startswith("RFC") else f"RFC 4395 {old}"
    clauses["rfc7595"] = new if new.startswith("RFC") else f"RFC 7595 {new}"
    if other:
        clauses.update(dict.fromkeys(_OTHER_PROFILES, other))
    return context.Check(id=identifier, title=title, clauses=clauses, level=level, run=run)


_REGISTRY_CLAUSE: Final = "RFC 7595 9"
CHECKS: Final[tuple[context.Check, ...]] = (
    _make_check("N1", "the name's syntax", "2.8", "3.8", _E, _names.check_name_syntax, "RFC 8126 2.2"),
    _make_check(
        "N2", "the name is free", "5.2 step 2", "7.2 step 7", _E, _names.check_name_taken, "RFC 8126 3"
    ),
    _make_check("N3", "dots and reversed domains", "2.8", "3.8", _E, _names.check_dots),
    _make_check("N4", "short, general or near names", "2.8", "3.8", _H, _names.check_general_names),
    _make_check("N5", "service names", None, "3.8", _H, _names.check_service_name),
    _make_check(
        "T1", "every field of the template", "5.4", "7.4", _E, _template.check_complete, "RFC 8126 3.1"
    ),
    _make_check("T1", "each field fits", "5.4", "7.4", _E, _template.check_fields, "RFC 8126 3.1"),
    _make_check("T2", "the requested status", "5.4", "7.4", _E, _template.check_status, "RFC 8126 3.1"),
    _make_check(
        "T3", "contact and change controller", "5.4", "7.4", _E, _template.check_contacts, "RFC 8126 9.5"
    ),
    _make_check("T4", "citations", "5.2 step 1", "7.2 step 1", _E, _citations.check_citations),
    _make_check(
        "T5", "a reason for a missing specification", "3", "4", _W, _template.check_reasons, "RFC 8126 4.6"
    ),
    _make_check("T7", "when the draft expires", "5.4", "7.4", _H, _citations.check_expiry),
    _make_check("T8", "the origin of a historical scheme", "4", "5", _W, _template.check_history),
    _make_check("S1", "inclusion in absolute-URI", "2.2", "3.2", _E, _syntax.check_inclusion),
    _make_check("S2", "each URI begins with the name", "2.2", "3.2", _E, _syntax.check_prefix),
    _make_check("S3", "the use of //", "2.2", "3.2", _E, _syntax.check_slashes),
    _make_check("S4", "dot segments and relative use", "2.2", "3.2", _W, _syntax.check_dot_segments),
    _make_check("S5", "reserved characters", "2.2", "3.2", _W, _syntax.check_reserved),
    _make_check("S6", "the grammar's rules", "2.2", "3.2", _W, _syntax.check_rules),
    _make_check("S7", "examples", "2.2", "3.2", _E, _syntax.check_examples),
    _make_check("S8", "character encoding", "2.6", "3.6", _E, _prose.check_encoding),
    _make_check("O1", "semantics and operations", "2.4", "3.4", _E, _prose.check_operations),
    _make_check("O2", "references for protocols", "2.5", "3.5", _W, _prose.check_protocols),
    _make_check("C1", "security and privacy", "2.7", "3.7", _E, _prose.check_security),
    _make_check("C2", "secrets in the URI", "2.7", "3.7", _W, _prose.check_credentials),
    _make_check(
        "D1", "names in other registries", "RFC 8126 3", "RFC 8126 3", _W, _prose.check_other_registries
    ),
    _make_check(
        "D2", "support for well-known URIs", "RFC 8615 5.2", "RFC 8615 5.2", _W, _prose.check_well_known
    ),
    _make_check(
        "D3", "example names and key words", "RFC 2606 2", "RFC 2606 2", _W, _prose.check_example_names
    ),
    # R1 checks a registry (`check_entries`), not a document
    _make_check(
        "R1", "the registry's own list", _REGISTRY_CLAUSE, _REGISTRY_CLAUSE, _W, lambda ctx: iter(())
    ),
    _make_check("T6", "differences from the guidelines are noted", "3", "4", _W, _template.check_differences),
    _make_check("Q1", "utility: for a person", "2.1", "3.1", _H, _prose.ask_reviewer),
    _make_check("Q2", "trademarks: for a person", "2.8", "3.8", _H, _prose.ask_reviewer),
    _make_check("Q3", "clarity: for a person", "2.3", "3.3", _H, _prose.ask_reviewer),
    _make_check("Q4", "a syntax with precedent: for a person", "2.2", "3.2", _H, _prose.ask_reviewer),
    _make_check("Q5", "access and mapping: for a person", "2.3", "3.3", _H, _prose.ask_reviewer),
    _make_check("Q6", "a safe default operation: for a person", None, "3.4", _H, _prose.ask_reviewer),
)

#: templates of one document that are checked
MAX_TEMPLATES: Final = 20
#: findings of one check that are reported
MAX_FINDINGS: Final = 200

#: the month of RFC 7595, and its number
_RFC_7595: Final = date(2015, 6, 1)
_NUMBER_7595: Final = 7595
#: the checks of a text that is only a grammar
_GRAMMAR_CHECKS: Final = frozenset({"S1", "S2", "S3", "S4", "S6"})
#: the checks of each scheme that a text without a template defines
_SYNTAX_CHECKS: Final = frozenset({"S1", "S2", "S3", "S4", "S5", "S7"})
_SEVERITY: Final = {Level.ERROR: 0, Level.WARNING: 1, Level.HINT: 2}
#: the checks whose findings decide a registration come first, the others in the order of the table
_MOST_IMPORTANT: Final = ("N1", "N2", "T1", "T2", "T3", "S1", "S2", "S3", "S7", "S8", "O1", "C1", "C2")
_ORDER: Final = {
    identifier: index
    for index, identifier in enumerate(dict.fromkeys((*_MOST_IMPORTANT, *(row.id for row in CHECKS))))
}


def check(
    document: Document,
    *,
    profile: str | None = None,
    known: ReferenceData | None = None,
    today: date | None = None,
    source: str | None = None,
    update: bool = False,
) -> Report:
    """Run every check over every template of the document.

    `profile` is an id of `PROFILES`; if it is None, `choose_profile` chooses one for each template, and the
    report names that of the first. `known` is the reference data (None: the shipped data). `today` decides
    whether a draft has expired. `source` names the document in the report. With `update` the name may be
    taken.

    Raises UnknownEntryError if the profile does not exist.
    """
    facts = load_builtin() if known is None else known
    reading = context.DocumentText(document)
    bare = is_bare_grammar(document)
    templates: tuple[Template | None, ...] = document.templates[:MAX_TEMPLATES] or (None,)
    profiles = [get_profile(profile or choose_profile(document, template)) for template in templates]
    inferred = () if document.templates else _infer_schemes(document, bare=bare)
    if len(inferred) > 1:
        templates, profiles = (None,) * len(inferred), profiles * len(inferred)
    findings: dict[Finding, None] = {}
    scheme = None
    for index, (template, chosen) in enumerate(zip(templates, profiles, strict=True)):
        rows = _select_checks(chosen, bare=bare)
        if template is None and index:
            # the other checks are about the whole text
            rows = [row for row in rows if row.id in _SYNTAX_CHECKS]
        if index:
            # the questions are about the document
            rows = [row for row in rows if not row.id.startswith("Q")]
        name = inferred[index] if inferred else ""
        ctx = context.CheckContext(
            document=document,
            reading=reading,
            profile=chosen,
            known=facts,
            template=template,
            syntax=_build_syntax(document, template, rows, name),
            inferred=name,
            today=today,
            update=update,
        )
        scheme = scheme or ctx.scheme or None
        for row in rows:
            ctx.check = row
            ctx.findings.extend(_limit_findings(row.run(ctx), ctx))
        findings.update(dict.fromkeys(ctx.findings))
    findings.update(dict.fromkeys(_report_omitted_templates(document, profiles[-1])))
    return Report(
        source=source or document.name or "-",
        profile=profiles[0].id,
        scheme=scheme,
        findings=tuple(sorted(findings, key=_get_sort_key)),
        ran=tuple(dict.fromkeys(row.id for row in _select_checks(profiles[0], bare=bare) if row.id != "R1")),
    )


def check_request(
    request: Request, known: ReferenceData | None = None, *, today: date | None = None
) -> Report:
    """Run every check over a request's template or, if it has none, over its fields.

    Raises RegistryError as `read_document` does.
    """
    if request.template.strip():
        document = read_document(
            request.template, registry=request.registry, source=request.id, need_template=False
        )
    else:
        document = _build_document(request)
    return check(
        document,
        profile=request.profile,
        known=known,
        today=today,
        source=request.id,
        update=request.kind is not RequestKind.NEW,
    )


def _build_document(request: Request) -> Document:
    """Return the request's fields as a template, each on its own lines."""
    texts = {"name": request.name, "status": request.status.value.capitalize(), **request.fields}
    profile = get_profile(request.profile)
    values: dict[str, TemplateValue] = {}
    lines: list[str] = []
    blocks: tuple[Block, ...] = ()
    for field in (*profile.fields, *profile.elsewhere):
        text = texts.get(field.id)
        if text:
            label = field.label[:1].upper() + field.label[1:]
            values[field.id] = TemplateValue(id=field.id, label=label, text=text, line=len(lines) + 1)
            if field.id == "syntax":
                blocks = find_value_blocks(values[field.id])
            lines += f"{label}: {text}".split("\n")
    template = Template(values=values, line=1)
    return Document(kind=DocumentKind.TEMPLATE, text="\n".join(lines), templates=(template,), blocks=blocks)


def choose_profile(document: Document, template: Template | None = None) -> str:
    """Return the profile for a template (None: the first); "rfc7595" if the document has none.

    The labels decide, but a document that cites RFC 7595 or is newer is checked under RFC 7595.
    """
    first = document.templates[0] if document.templates else Template(values={}, line=1)
    chosen = profile_of_template(first if template is None else template, document.registry)
    return "rfc7595" if chosen == "rfc4395" and _is_under_rfc7595(document) else chosen


def _is_under_rfc7595(document: Document) -> bool:
    if document.dated is not None and document.dated >= _RFC_7595:
        return True
    number = re.fullmatch(r"RFC (\d{1,5})", document.name or "")
    if number is not None and int(number[1]) >= _NUMBER_7595:
        return True
    keys = [citation.key for citation in document.citations]
    return "RFC7595" in [*keys, *(reference.key for reference in document.references)]


def _infer_schemes(document: Document, *, bare: bool) -> tuple[str, ...]:
    """Return the schemes that the grammar of a text without a template defines."""
    syntax = read_syntax(document.blocks, "")
    if bare and syntax.start is not None:
        return ()
    return syntax.infer_schemes()[:MAX_TEMPLATES]


def _build_syntax(
    document: Document, template: Template | None, rows: list[context.Check], inferred: str
) -> SchemeGrammar:
    name = inferred if template is None else clean_name(template.text("name"))
    if all(row.id != "S1" for row in rows):
        return SchemeGrammar(name)
    syntax = read_syntax(document.blocks, name)
    if template is not None and syntax.defines_other_scheme:
        other = _syntax.find_same_syntax(template.text("syntax"), syntax.schemes)
        # "Same as for 'news'": the rules of that scheme apply, with another name
        if other is not None:
            syntax = read_syntax(document.blocks, other)
            syntax.alias = other
    return syntax


def _select_checks(chosen: Profile, *, bare: bool) -> list[context.Check]:
    return [row for row in CHECKS if chosen.checks in row.clauses and (not bare or row.id in _GRAMMAR_CHECKS)]


def _limit_findings(findings: Iterable[Finding], ctx: context.CheckContext) -> Iterator[Finding]:
    for count, finding in enumerate(findings):
        if count >= MAX_FINDINGS:
            message = f"not checked: only {MAX_FINDINGS} findings of {ctx.check.id} are shown"
            yield ctx.report(UNCHECKED, message, level=Level.HINT)
            return
        yield finding


def _report_omitted_templates(document: Document, chosen: Profile) -> Iterator[Finding]:
    more = len(document.templates) - MAX_TEMPLATES
    if more > 0:
        yield Finding(
            check="T1",
            code=UNCHECKED,
            level=Level.HINT,
            message=f"not checked: {more} further templates: only {MAX_TEMPLATES} are checked",
            clause=chosen.template_clause,
            line=document.templates[MAX_TEMPLATES].line,
        )


def _get_sort_key(finding: Finding) -> tuple[int | bool | str, ...]:
    return (
        _SEVERITY[finding.level],
        finding.code == UNCHECKED,
        _ORDER[finding.check],
        finding.line or 0,
        finding.column or 0,
        finding.code + finding.message,
    )


_FOLDERS: Final = {"perm": Status.PERMANENT, "prov": Status.PROVISIONAL, "historic": Status.HISTORICAL}


def check_entries(entries: Sequence[Entry], *, source: str = "registry") -> Report:
    """R1: names are unique and sorted, and template paths trimmed and in the folder of the status."""
    findings = tuple(
        Finding(
            check="R1",
            code=code,
            level=Level.WARNING,
            message=message,
            clause=_REGISTRY_CLAUSE,
            field=field,
            witness=context.to_printable(entry.spelling or entry.name),
            fix=fix,
        )
        for problems in (_iter_name_problems(entries), _iter_path_problems(entries))
        for entry, code, field, message, fix in problems
    )
    return Report(source=source, profile="rfc7595", scheme=None, findings=findings, ran=("R1",))


def _iter_name_problems(entries: Sequence[Entry]) -> Iterator[tuple[Entry, str, str, str, str]]:
    seen: set[str] = set()
    last = ""
    for entry in entries:
        name = entry.name.lower()
        if name in seen:
            yield entry, "name-twice", "name", "the name is given twice, ignoring case", "keep one row"
        if name < last:
            yield entry, "not-sorted", "name", "the row is out of order", "sort rows by name"
        seen.add(name)
        last = name


def _iter_path_problems(entries: Sequence[Entry]) -> Iterator[tuple[Entry, str, str, str, str]]:
    for entry in entries:
        path = entry.fields.get("template", "")
        if path != path.strip():
            yield entry, "path-not-trimmed", "template", "white space around the template path", "trim it"
        folder = path.strip().strip("/").split("/")[0]
        if _FOLDERS.get(folder, entry.status) is not entry.status:
            message = f"the template is in {context.to_printable(folder)}/, but the status is {entry.status}"
            yield entry, "folder-does-not-fit", "template", message, "move the template"


MAX_LINE: Final = 2_000
_STYLES: Final = {Level.ERROR: "1;31", Level.WARNING: "1;33", Level.HINT: "1;36"}


def as_text(report: Report, *, colour: bool = False) -> str:
    """Return the report as lines without a last line break. With `colour`, it has terminal colours."""
    profile = PROFILES.get(report.profile)
    noun = "scheme" if profile is None or profile.own_rules is None else "name"
    about = (
        f"{_to_printable_line(report.source)}: "
        + (f'{noun} "{_to_printable_line(report.scheme)}", ' if report.scheme else "")
        + report.profile
    )
    lines = [_apply_style(about, "1", colour)]
    for finding in report.plain:
        lines += ["", *_iter_finding_lines(finding, colour)]
    lines += _format_group("not checked", report.unchecked, colour)
    lines += _format_group("for a person to judge", report.questions, colour)
    summary = _apply_style(format_summary(report), "32" if report.ok else "1;31", colour)
    return "\n".join([*lines, "", summary])


def format_summary(report: Report) -> str:
    """Return one line: `no errors, 2 warnings, 1 hint (33 checks)`. Questions for a person are not hints."""
    counts = report.counts
    skipped = len({finding.check for finding in report.unchecked})
    ran = _format_count(len(report.ran), "check") + (f", {skipped} not complete" if skipped else "")
    found = ", ".join(_format_count(counts[level], level) for level in Level)
    return f"{found} ({ran})"


def _to_printable_line(text: str) -> str:
    return context.to_printable(text, MAX_LINE)


def _format_count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _iter_finding_lines(finding: Finding, colour: bool) -> Iterator[str]:
    column = f":{finding.column}" if finding.column else ""
    place = "" if finding.line is None else f"line {finding.line}{column}: "
    level = _apply_style(finding.level, _STYLES[finding.level], colour)
    yield f"{level} {finding.check} {place}{_to_printable_line(finding.message)}  [{finding.clause}]"
    if finding.witness:
        yield f"  {_apply_style('shown by:', '2', colour)} {context.to_visible(finding.witness, MAX_LINE)}"
    if finding.fix:
        yield f"  {_apply_style('fix:', '32', colour)} {_to_printable_line(finding.fix)}"
    yield f"  {_apply_style(finding.code, '2', colour)}"


def _format_group(title: str, findings: Sequence[Finding], colour: bool) -> list[str]:
    if not findings:
        return []
    rows = [
        f"  {finding.check} {_to_printable_line(finding.message).split(': ', 1)[1]}  [{finding.clause}]"
        for finding in findings
    ]
    return ["", _apply_style(title, "1", colour), *dict.fromkeys(rows)]


def _apply_style(text: str, style: str, colour: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if colour else text


SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.HINT: "note"}


def to_sarif(report: Report, text: str = "") -> dict[str, Any]:
    """Return a SARIF log with one run. `text` is the checked text, which gives the ends of lines."""
    lines = text.split("\n")
    used = list(dict.fromkeys(f"{finding.check}/{finding.code}" for finding in report.findings))
    driver = {
        "name": "onym",
        "version": __version__,
        "rules": [_build_rule(identifier, report) for identifier in used],
    }
    properties = {"profile": report.profile, "scheme": report.scheme, "checks": list(report.ran)}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "properties": properties,
        "results": [_build_result(finding, report, lines, used) for finding in report.findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _build_rule(identifier: str, report: Report) -> dict[str, Any]:
    check, code = identifier.split("/")
    first = next(finding for finding in report.findings if finding.check == check and finding.code == code)
    title = next(row.title for row in CHECKS if row.id == check)
    return {
        "id": identifier,
        "name": "".join(part.capitalize() for part in code.split("-")),
        "shortDescription": {"text": f"{check}: {title}"},
        "help": {"text": f"Rule: {first.clause}"},
        "defaultConfiguration": {"level": _LEVELS[first.level]},
        "properties": {"clause": first.clause},
    }


def _build_result(finding: Finding, report: Report, lines: list[str], used: list[str]) -> dict[str, Any]:
    identifier = f"{finding.check}/{finding.code}"
    texts = [
        finding.message,
        f"Shown by: {finding.witness}" if finding.witness else "",
        f"Fix: {finding.fix}" if finding.fix else "",
    ]
    properties = {name: getattr(finding, name) for name in ("clause", "field", "witness", "fix")}
    location = {
        "artifactLocation": {"uri": _encode_uri(report.source)},
        "region": _build_region(finding, lines),
    }
    return {
        "ruleId": identifier,
        "ruleIndex": used.index(identifier),
        # "kind" is left out: any kind except "fail" requires the level "none"
        "level": _LEVELS[finding.level],
        "message": {"text": "\n".join(filter(None, texts))},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"onymFinding/v1": _compute_fingerprint(finding, report)},
        "properties": {name: value for name, value in properties.items() if value is not None},
    }


def _build_region(finding: Finding, lines: list[str]) -> dict[str, int]:
    line = finding.line or 1
    region = {"startLine": line}
    if finding.column is not None:
        region["startColumn"] = finding.column
    length = len(lines[line - 1]) if line <= len(lines) else 0
    if length >= (finding.column or 1):
        region["endColumn"] = length + 1
    return region


def _encode_uri(source: str) -> str:
    """Return the path as a relative reference; standard input as a name that no file has."""
    return "stdin" if source == "-" else PATH.quote(source.replace("\\", "/")).replace(":", "%3A")


def _compute_fingerprint(finding: Finding, report: Report) -> str:
    """Return a digest that stays the same if the finding moves to another line."""
    parts = (report.scheme, finding.check, finding.code, finding.field, finding.witness or finding.message)
    text = "\x1f".join(map(str, parts))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
