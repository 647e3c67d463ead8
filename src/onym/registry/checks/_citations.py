"""T4 and T7: do citations lead somewhere, and how long does the draft hold?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from onym.registry.checks._cited_sections import sections
from onym.registry.checks._context import Context, Faults, fault, shown, squeezed, unchecked
from onym.registry.checks.report import Level
from onym.registry.documents.types import Citation, DocumentKind
from onym.registry.profiles import DRAFT_LIFE

if TYPE_CHECKING:
    from onym.registry.iana import RFC

__all__ = ["citations", "expiry"]

#: how many findings of one kind are listed
MAX_LISTED: Final = 40
#: numbers beyond the last RFC of an incomplete list that may be newer RFCs
MARGIN: Final = 1_000
#: RFCs in a row of which each obsoletes the one before
_CHAIN: Final = 10

_RFC: Final = re.compile(r"^RFC[ -]?0*([0-9]{1,5})$", re.IGNORECASE)
_RFC_TEXT: Final = re.compile(r"\bRFC[ -]?0*([0-9]{1,5})\b")
_DRAFT: Final = re.compile(r"\bdraft-[a-z0-9]+(?:-[a-z0-9]+){1,12}\b")
_THIS: Final = re.compile(r"\bthis (?:document|specification|memo|draft|internet-draft)\b", re.IGNORECASE)
#: the head of a document says what it replaces
_HEAD: Final = re.compile(r"^ *(?:Obsoletes|Updates):", re.IGNORECASE)
# marks around the name of an RFC in text, Markdown and XML
_OPEN: Final = r"(?:<xref target=\")?[\[{!?(]{0,4}"
_CLOSE: Final = r"[\]}]{0,3}(?:\" ?/>)?"
_OTHER: Final = rf"{_OPEN}(?:RFCs?[ -]?)?[0-9]{{1,5}}{_CLOSE}"
#: "obsoletes RFC 1 and RFC n", "replaces RFC n"; "RFC n is obsolete", "RFC n, replaced by"
_REPLACES: Final = (
    rf"\b(?:obsolet|replac)(?:e[sd]?|ing) (?:{_OTHER}(?:,|,? and|,? or) ){{0,9}}"
    rf"{_OPEN}(?:RFCs?[ -]?)?0*%(number)d\b"
    rf"|\bRFC[ -]?0*%(number)d{_CLOSE},? (?:(?:which|that|now|since|been|is|was|has|have|are|were) ){{1,4}}"
    r"(?:obsoleted?|replaced)\b"
    rf"|\bRFC[ -]?0*%(number)d{_CLOSE},? \(?(?:obsoleted|replaced) by\b"
)
#: characters of a line that are looked at
_WIDEST: Final = 400


def citations(ctx: Context) -> Faults:
    """T4: keys resolve both ways, RFCs exist and stand, cited sections exist and are about the matter."""
    yield from _keys(ctx)
    yield from _drafts(ctx)
    yield from _rfcs(ctx)
    yield from sections(ctx)
    yield from _this_document(ctx)


def _keys(ctx: Context) -> Faults:
    cited, listed = ctx.document.citations, ctx.document.references
    if not listed:
        cited = tuple(each for each in cited if not each.bare)
        if cited and ctx.document.kind is not DocumentKind.TEMPLATE:
            yield fault(
                "no-reference-list",
                f"{len({each.key for each in cited})} keys are cited and no list of references was found",
                level=Level.WARNING,
                line=cited[0].line,
                fix="add a section `References` with a full citation for each key",
            )
        return
    known = {_key(each.key) for each in listed}
    used = {_key(each.key) for each in cited}
    missing = {
        _key(each.key): each for each in reversed(cited) if _key(each.key) not in known and not each.bare
    }
    for each in sorted(missing.values(), key=lambda one: one.line)[:MAX_LISTED]:
        yield fault(
            "citation-unlisted",
            f"[{shown(each.key)}] is cited and not in the list of references",
            # a template may have been cut out of a document that lists them
            level=Level.ERROR if ctx.whole else Level.WARNING,
            line=each.line,
            witness=f"[{shown(each.key)}]",
            fix=f"add `[{shown(each.key)}]` with its full citation to the references",
        )
    own = _field_lines(ctx)
    value = ctx.value("references")
    uncited = (
        each
        for each in listed
        if _key(each.key) not in used and not (each.line in own and f"[{each.key}]" in value)
    )
    for entry in list(uncited)[:MAX_LISTED]:
        yield fault(
            "reference-uncited",
            f"[{shown(entry.key)}] is listed and never cited",
            level=Level.WARNING,
            line=entry.line,
            witness=f"[{shown(entry.key)}]",
            fix="cite it where it is used, or take it out",
        )


def _field_lines(ctx: Context) -> range:
    """The lines of the template's own list: what stands there is cited by standing there."""
    value = None if ctx.template is None else ctx.template.values.get("references")
    return range(0) if value is None else range(value.line, value.line + value.text.count("\n") + 2)


def _key(key: str) -> str:
    return re.sub(r"[\s-]", "", key).lower()


def _drafts(ctx: Context) -> Faults:
    """Internet-Drafts that the text names and no reference holds."""
    own = _stem(ctx.document.name or "")
    listed = " ".join(f"{each.key} {each.text}" for each in ctx.document.references)
    listed += " " + ctx.value("references")
    seen: dict[str, int] = {}
    for found in _DRAFT.finditer(ctx.reading.text):
        if len(seen) < MAX_LISTED:
            seen.setdefault(found[0], found.start())
    for name, at in seen.items():
        stem = _stem(name)
        if stem != own and stem not in listed and (ctx.document.references or ctx.template is not None):
            yield fault(
                "draft-unlisted",
                f"{shown(name)} is named and not in the list of references",
                level=Level.WARNING,
                line=ctx.reading.line(at),
                witness=shown(name),
                fix="add it to the references, as work in progress",
            )


def _stem(name: str) -> str:
    return re.sub(r"-(?:\d\d|latest)$", "", name)


def _rfcs(ctx: Context) -> Faults:
    if not ctx.known.rfcs:
        yield unchecked("whether cited RFCs exist and stand", "no index of RFCs is at hand")
        return
    last = max(ctx.known.rfcs) + (0 if ctx.known.all_rfcs else MARGIN)
    open_ones: list[str] = []
    for number, line in _cited_rfcs(ctx):
        row = ctx.known.rfcs.get(number)
        if row is None and (ctx.known.all_rfcs or number > last or number == 0):
            yield fault(
                "rfc-unknown",
                f"there is no RFC {number}",
                level=Level.ERROR,
                line=line,
                witness=f"RFC {number}",
                fix="correct the number",
            )
        elif row is None:
            open_ones.append(str(number))
        elif row.obsoleted_by and ctx.document.name not in {f"RFC {each}" for each in row.obsoleted_by}:
            newer = " and ".join(f"RFC {each}" for each in _newest(ctx, row))
            yield fault(
                "rfc-obsolete",
                f"RFC {number} is obsolete: see {newer}",
                level=Level.WARNING,
                line=line,
                witness=f"RFC {number}",
                fix=f"cite {newer}, unless the old text is meant",
            )
    if open_ones:
        listed = ", ".join(open_ones[:MAX_LISTED])
        yield unchecked(f"whether RFC {listed} exist and stand", "the shipped list of RFCs is not complete")


def _newest(ctx: Context, row: RFC) -> list[int]:
    """The RFCs that stand in its place now: what replaced it may be obsolete too."""
    open_ones, seen, out = list(row.obsoleted_by), {row.number}, []
    while open_ones and len(seen) <= _CHAIN:
        number = open_ones.pop(0)
        if number in seen:
            continue
        seen.add(number)
        newer = ctx.known.rfcs.get(number)
        if newer is not None and newer.obsoleted_by:
            open_ones += newer.obsoleted_by
        else:
            out.append(number)
    return sorted(out) or list(row.obsoleted_by)


def _cited_rfcs(ctx: Context) -> Iterator[tuple[int, int | None]]:
    """Each RFC once, with the first place that cites it."""
    found: dict[int, int | None] = {}
    for each in ctx.document.citations:
        match = _RFC.match(each.key)
        if match and not _replaced(ctx, each, int(match[1])):
            found.setdefault(int(match[1]), each.line)
    for match in _RFC_TEXT.finditer(ctx.value("references")[:20_000]):
        found.setdefault(int(match[1]), ctx.line("references"))
    yield from list(found.items())[:200]


def _replaced(ctx: Context, cited: Citation, number: int) -> bool:
    """Is it cited as what this document, or another, replaces?"""
    row = ctx.known.rfcs.get(number)
    lines = ctx.reading.lines
    if row is None or not row.obsoleted_by or cited.line > len(lines):
        return False
    if _HEAD.match(lines[cited.line - 1]):
        return True
    near = squeezed(" ".join(each[:_WIDEST] for each in lines[max(cited.line - 2, 0) : cited.line + 1]))
    return re.search(_REPLACES % {"number": number}, near, re.IGNORECASE) is not None


def _this_document(ctx: Context) -> Faults:
    value = ctx.value("references")
    if _THIS.search(value) and ctx.document.kind is not DocumentKind.RFC:
        name = ctx.document.name
        instead = (
            f"`{shown(name.removesuffix('-latest'))}`" if name else "the name of the document, with its date"
        )
        yield fault(
            "this-document",
            '"This document" cites nothing once the template stands in the registry',
            level=Level.WARNING,
            field="references",
            line=ctx.line("references"),
            witness=shown(value),
            fix=f"write {instead}, and the RFC's number when there is one",
        )


def expiry(ctx: Context) -> Faults:
    """T7: when the draft expires, and with it the entry is to be updated (row U4)."""
    document = ctx.document
    if document.kind is not DocumentKind.DRAFT and not (document.dated and document.expires):
        return
    computed = None if document.dated is None else document.dated + DRAFT_LIFE
    end = document.expires or computed
    if end is None:
        yield unchecked("when the draft expires", "it bears no date")
        return
    if computed is not None and document.expires is not None and abs((computed - document.expires).days) > 1:
        yield fault(
            "draft-expiry-wrong",
            f"the draft says that it expires on {document.expires}; 185 days after its date is {computed}",
            level=Level.WARNING,
            line=1,
            fix=f"write `Expires: {computed.day} {computed:%B %Y}`",
        )
    past = ctx.today is not None and end < ctx.today
    yield fault(
        "draft-expired" if past else "draft-expires",
        f"the draft {'expired' if past else 'expires'} on {end}; the entry is to be updated then (row U4)",
        level=Level.HINT,
        line=1,
        fix="publish a new version, or cite the document that replaces it",
    )
