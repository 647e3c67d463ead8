"""Run the table over a document: choose the profile, gather the findings, put them in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Final

from onym.registry.checks._context import Context, Fault, Row, clean_name
from onym.registry.checks._grammar import Syntax, read_syntax
from onym.registry.checks._reading import Reading
from onym.registry.checks._table import CHECKS
from onym.registry.checks.known import Known, builtin
from onym.registry.checks.load import grammar_alone
from onym.registry.checks.report import Finding, Level, Report
from onym.registry.documents.types import Document, DocumentKind, Template, TemplateValue
from onym.registry.profiles import Profile
from onym.registry.profiles import profile as profile_of
from onym.registry.records import Request, RequestKind

__all__ = ["check", "check_request", "choose_profile"]

#: templates of one document that are checked
MAX_TEMPLATES: Final = 20
#: findings of one check that are kept
MAX_FINDINGS: Final = 200

#: the month of RFC 7595, and its number
_RFC_7595: Final = date(2015, 6, 1)
_NUMBER_7595: Final = 7595
#: what can be asked of a grammar that stands alone
_OF_GRAMMAR: Final = frozenset({"S1", "S2", "S3", "S4", "S6"})
_GRAVITY: Final = {Level.ERROR: 0, Level.WARNING: 1, Level.HINT: 2}
_ORDER: Final = {row.id: at for at, row in enumerate(CHECKS)}


def check(
    document: Document,
    *,
    profile: str | None = None,
    known: Known | None = None,
    today: date | None = None,
    source: str | None = None,
    update: bool = False,
) -> Report:
    """Every check over every template of the document, gravest findings first.

    `profile` is an id of `PROFILES`; None takes, for each template, that of `choose_profile`; the report's
    is that of the first. `known` are the facts to check against (None: the shipped ones). `today` tells
    whether a draft has expired. `source` names the document in the report; `update` says that the name may
    be taken.

    Raises UnknownEntryError for a profile that there is not.
    """
    facts = builtin() if known is None else known
    reading = Reading(document)
    bare = grammar_alone(document)
    templates: tuple[Template | None, ...] = document.templates[:MAX_TEMPLATES] or (None,)
    profiles = [profile_of(profile or choose_profile(document, each)) for each in templates]
    findings: dict[Finding, None] = {}
    scheme = None
    for template, chosen in zip(templates, profiles, strict=True):
        rows = _rows(chosen, bare=bare)
        ctx = Context(
            document=document,
            reading=reading,
            profile=chosen,
            known=facts,
            template=template,
            syntax=_syntax(document, template, rows),
            today=today,
            update=update,
        )
        scheme = scheme or ctx.scheme or None
        findings.update(dict.fromkeys(_run(rows, ctx)))
    findings.update(dict.fromkeys(_cut(document, profiles[-1])))
    return Report(
        source=source or document.name or "-",
        profile=profiles[0].id,
        scheme=scheme,
        findings=tuple(sorted(findings, key=_place)),
        ran=tuple(dict.fromkeys(row.id for row in _rows(profiles[0], bare=bare) if row.id != "R1")),
    )


def check_request(request: Request, known: Known | None = None, *, today: date | None = None) -> Report:
    """The same over a request's template as it was pasted; without one, over its fields.

    Raises RegistryError as `read_document` does.
    """
    from onym.registry.documents import read_document  # late: lists of requests need no reader

    if request.template.strip():
        document = read_document(
            request.template, registry=request.registry, source=request.id, need_template=False
        )
    else:
        document = _of_fields(request)
    return check(
        document,
        profile=request.profile,
        known=known,
        today=today,
        source=request.id,
        update=request.kind is not RequestKind.NEW,
    )


def _of_fields(request: Request) -> Document:
    """The request's fields as a template, each on lines of its own."""
    given = {"name": request.name, "status": request.status.value.capitalize(), **request.fields}
    form = profile_of(request.profile)
    values: dict[str, TemplateValue] = {}
    lines: list[str] = []
    for each in (*form.fields, *form.elsewhere):
        if given.get(each.id):
            label = each.label[:1].upper() + each.label[1:]
            values[each.id] = TemplateValue(id=each.id, label=label, text=given[each.id], line=len(lines) + 1)
            lines += f"{label}: {given[each.id]}".split("\n")
    template = Template(values=values, line=1)
    return Document(kind=DocumentKind.TEMPLATE, text="\n".join(lines), templates=(template,))


def choose_profile(document: Document, template: Template | None = None) -> str:
    """The profile that a template (None: the first) is to be judged by; rfc7595 where there is none.

    Its labels decide; but a document that cites RFC 7595, or came after it, is judged by RFC 7595.
    """
    from onym.registry.documents import profile_of_template

    first = document.templates[0] if document.templates else Template(values={}, line=1)
    chosen = profile_of_template(first if template is None else template, document.registry)
    return "rfc7595" if chosen == "rfc4395" and _knows_7595(document) else chosen


def _knows_7595(document: Document) -> bool:
    if document.dated is not None and document.dated >= _RFC_7595:
        return True
    number = re.fullmatch(r"RFC (\d{1,5})", document.name or "")
    if number is not None and int(number[1]) >= _NUMBER_7595:
        return True
    keys = [*(each.key for each in document.citations), *(each.key for each in document.references)]
    return "RFC7595" in keys


def _syntax(document: Document, template: Template | None, rows: list[Row]) -> Syntax:
    name = "" if template is None else clean_name(template.text("name"))
    has_syntax = any(row.id == "S1" for row in rows)
    return read_syntax(document.blocks, name) if has_syntax else Syntax(name)


def _rows(chosen: Profile, *, bare: bool) -> list[Row]:
    """The checks with a clause under the profile; of a bare grammar those about grammars."""
    return [row for row in CHECKS if chosen.id in row.clauses and (not bare or row.id in _OF_GRAMMAR)]


def _run(rows: list[Row], ctx: Context) -> list[Finding]:
    for row in rows:
        ctx.so_far.extend(_of(row, ctx))
    return ctx.so_far


def _of(row: Row, ctx: Context) -> Iterator[Finding]:
    for at, found in enumerate(row.run(ctx)):
        if at >= MAX_FINDINGS:
            cut = Fault(
                code="could-not-check",
                message=f"not checked: {MAX_FINDINGS} findings of {row.id} are shown",
                level=Level.HINT,
            )
            yield _finding(row, cut, ctx)
            return
        yield _finding(row, found, ctx)


def _finding(row: Row, found: Fault, ctx: Context) -> Finding:
    return Finding(
        check=row.id,
        code=found.code,
        level=row.level if found.level is None else found.level,
        message=found.message,
        clause=found.clause or row.clauses[ctx.profile.id],
        field=found.field,
        line=found.line,
        column=found.column,
        witness=found.witness,
        fix=found.fix,
    )


def _cut(document: Document, chosen: Profile) -> Iterator[Finding]:
    more = len(document.templates) - MAX_TEMPLATES
    if more > 0:
        yield Finding(
            check="T1",
            code="could-not-check",
            level=Level.HINT,
            message=f"not checked: {more} further templates: {MAX_TEMPLATES} of one document are checked",
            clause=chosen.template_clause,
            line=document.templates[MAX_TEMPLATES].line,
        )


def _place(found: Finding) -> tuple[int, int, int, int, str]:
    return (
        _GRAVITY[found.level],
        found.line or 0,
        found.column or 0,
        _ORDER[found.check],
        found.code + found.message,
    )
