"""Checks T4 and T7: citations, cited sections, and the expiry date of a draft."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from onym.registry.checks.context import (
    CheckContext,
    Faults,
    Level,
    make_fault,
    make_unchecked,
    squeeze_spaces,
    to_printable,
)
from onym.registry.checks.reference_data import load_section_titles
from onym.registry.documents.types import Citation, DocumentKind
from onym.registry.registries import DRAFT_LIFETIME

if TYPE_CHECKING:
    from onym.registry.iana import RFC

#: how many citations are looked at
MAX_CITED: Final = 2_000

_RFC_KEY: Final = re.compile(r"^RFC[ -]?0*([0-9]{1,5})$", re.IGNORECASE)
_WORDS: Final = re.compile(r"[a-z]{3,}")
_ENDING: Final = re.compile(r"(?:(?<=^regist)\w+|ings?|ed|ations?|es|s)$")
#: sections that every document has: to speak of one's own is not to cite another's
_EVERYWHERE: Final = frozenset({"iana considerations", "security considerations"})
_PLAIN: Final = frozenset(
    {"and", "the", "for", "of", "with", "uri", "uris", "url", "definition", "defined", "well"}
)


def check_sections(ctx: CheckContext) -> Faults:
    """Sections of RFCs whose titles are known: unknown numbers, and numbers that do not fit the words."""
    for citation in ctx.document.citations[:MAX_CITED]:
        match = _RFC_KEY.match(citation.key)
        titles = load_section_titles().get(int(match[1])) if match else None
        if titles is None or citation.section is None:
            continue
        number = citation.section.rstrip(".")
        if number not in titles:
            yield make_fault(
                "section-unknown",
                f"RFC {match[1] if match else ''} has no section {to_printable(number)}",
                level=Level.ERROR,
                line=citation.line,
                witness=f"[{to_printable(citation.key)}] Section {to_printable(number)}",
                fix="correct the number of the section",
            )
            continue
        yield from _check_title_fits(ctx, citation, number, titles)


def _check_title_fits(ctx: CheckContext, cited: Citation, number: str, titles: Mapping[str, str]) -> Faults:
    """The words around the citation are another section's title, and share none with the cited one's.

    Words alone prove nothing, so it is a warning; and an appendix may hold anything.
    """
    around = _stem_words(ctx.reading.get_sentence(cited))
    if number[0].isalpha() or _stem_words(titles[number]) & around:
        return
    better = [
        (len(words), other, title)
        for other, title in titles.items()
        if title.lower() not in _EVERYWHERE
        and len(words := _stem_words(title)) >= 2
        and words <= around
        and not _is_related(number, other)
    ]
    if better:
        _, other, title = max(better)
        yield make_fault(
            "section-does-not-fit",
            f'[{to_printable(cited.key)}] Section {number} is "{titles[number]}"; '
            f'the text is about "{title}", Section {other}',
            level=Level.WARNING,
            line=cited.line,
            witness=f"[{to_printable(cited.key)}] Section {number}",
            fix=f"write `[{to_printable(cited.key)}] Section {other}`",
        )


def _is_related(one: str, other: str) -> bool:
    """Is one of the sections inside the other?"""
    return one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _stem_words(text: str) -> frozenset[str]:
    return frozenset(_ENDING.sub("", word) for word in _WORDS.findall(text.lower()) if word not in _PLAIN)


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


def check_citations(ctx: CheckContext) -> Faults:
    """T4: keys resolve both ways, RFCs exist and stand, cited sections exist and are about the matter."""
    yield from _check_keys(ctx)
    yield from _check_drafts(ctx)
    yield from _check_rfcs(ctx)
    yield from check_sections(ctx)
    yield from _check_this_document(ctx)


def _check_keys(ctx: CheckContext) -> Faults:
    cited, listed = ctx.document.citations, ctx.document.references
    if not listed:
        cited = tuple(citation for citation in cited if not citation.bare)
        if cited and ctx.document.kind is not DocumentKind.TEMPLATE:
            yield make_fault(
                "no-reference-list",
                f"{len({citation.key for citation in cited})} keys are cited "
                "and no list of references was found",
                level=Level.WARNING,
                line=cited[0].line,
                fix="add a section `References` with a full citation for each key",
            )
        return
    known = {_normalize_key(reference.key) for reference in listed}
    used = {_normalize_key(citation.key) for citation in cited}
    missing = {
        _normalize_key(citation.key): citation
        for citation in reversed(cited)
        if _normalize_key(citation.key) not in known and not citation.bare
    }
    for citation in sorted(missing.values(), key=lambda one: one.line)[:MAX_LISTED]:
        yield make_fault(
            "citation-unlisted",
            f"[{to_printable(citation.key)}] is cited and not in the list of references",
            # a template may have been cut out of a document that lists them
            level=Level.ERROR if ctx.is_specification else Level.WARNING,
            line=citation.line,
            witness=f"[{to_printable(citation.key)}]",
            fix=f"add `[{to_printable(citation.key)}]` with its full citation to the references",
        )
    own = _get_field_lines(ctx)
    value = ctx.get_field("references")
    uncited = (
        reference
        for reference in listed
        if _normalize_key(reference.key) not in used
        and not (reference.line in own and f"[{reference.key}]" in value)
    )
    for entry in list(uncited)[:MAX_LISTED]:
        yield make_fault(
            "reference-uncited",
            f"[{to_printable(entry.key)}] is listed and never cited",
            level=Level.WARNING,
            line=entry.line,
            witness=f"[{to_printable(entry.key)}]",
            fix="cite it where it is used, or take it out",
        )


def _get_field_lines(ctx: CheckContext) -> range:
    """The lines of the template's own list: what stands there is cited by standing there."""
    value = None if ctx.template is None else ctx.template.values.get("references")
    return range(0) if value is None else range(value.line, value.line + value.text.count("\n") + 2)


def _normalize_key(key: str) -> str:
    return re.sub(r"[\s-]", "", key).lower()


def _check_drafts(ctx: CheckContext) -> Faults:
    """Internet-Drafts that the text names and no reference holds."""
    own = _strip_version(ctx.document.name or "")
    listed = " ".join(f"{reference.key} {reference.text}" for reference in ctx.document.references)
    listed += " " + ctx.get_field("references")
    seen: dict[str, int] = {}
    for found in _DRAFT.finditer(ctx.reading.text):
        if len(seen) < MAX_LISTED:
            seen.setdefault(found[0], found.start())
    for name, at in seen.items():
        stem = _strip_version(name)
        if stem != own and stem not in listed and (ctx.document.references or ctx.template is not None):
            yield make_fault(
                "draft-unlisted",
                f"{to_printable(name)} is named and not in the list of references",
                level=Level.WARNING,
                line=ctx.reading.get_line(at),
                witness=to_printable(name),
                fix="add it to the references, as work in progress",
            )


def _strip_version(name: str) -> str:
    return re.sub(r"-(?:\d\d|latest)$", "", name)


def _check_rfcs(ctx: CheckContext) -> Faults:
    if not ctx.known.rfcs:
        yield make_unchecked("whether cited RFCs exist and stand", "no index of RFCs is at hand")
        return
    last = max(ctx.known.rfcs) + (0 if ctx.known.all_rfcs else MARGIN)
    open_ones: list[str] = []
    for number, line in _iter_cited_rfcs(ctx):
        row = ctx.known.rfcs.get(number)
        if row is None and (ctx.known.all_rfcs or number > last or number == 0):
            yield make_fault(
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
            newer = " and ".join(f"RFC {each}" for each in _find_newest(ctx, row))
            yield make_fault(
                "rfc-obsolete",
                f"RFC {number} is obsolete: see {newer}",
                level=Level.WARNING,
                line=line,
                witness=f"RFC {number}",
                fix=f"cite {newer}, unless the old text is meant",
            )
    if open_ones:
        listed = ", ".join(open_ones[:MAX_LISTED])
        yield make_unchecked(
            f"whether RFC {listed} exist and stand", "the shipped list of RFCs is not complete"
        )


def _find_newest(ctx: CheckContext, row: RFC) -> list[int]:
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


def _iter_cited_rfcs(ctx: CheckContext) -> Iterator[tuple[int, int | None]]:
    """Each RFC once, with the first place that cites it."""
    found: dict[int, int | None] = {}
    for citation in ctx.document.citations:
        match = _RFC.match(citation.key)
        if match and not _is_replaced(ctx, citation, int(match[1])):
            found.setdefault(int(match[1]), citation.line)
    for match in _RFC_TEXT.finditer(ctx.get_field("references")[:20_000]):
        found.setdefault(int(match[1]), ctx.get_line("references"))
    yield from list(found.items())[:200]


def _is_replaced(ctx: CheckContext, cited: Citation, number: int) -> bool:
    """Is it cited as what this document, or another, replaces?"""
    row = ctx.known.rfcs.get(number)
    lines = ctx.reading.lines
    if row is None or not row.obsoleted_by or cited.line > len(lines):
        return False
    if _HEAD.match(lines[cited.line - 1]):
        return True
    near = squeeze_spaces(" ".join(line[:_WIDEST] for line in lines[max(cited.line - 2, 0) : cited.line + 1]))
    return re.search(_REPLACES % {"number": number}, near, re.IGNORECASE) is not None


def _check_this_document(ctx: CheckContext) -> Faults:
    value = ctx.get_field("references")
    if _THIS.search(value) and ctx.document.kind is not DocumentKind.RFC:
        name = ctx.document.name
        instead = (
            f"`{to_printable(name.removesuffix('-latest'))}`"
            if name
            else "the name of the document, with its date"
        )
        yield make_fault(
            "this-document",
            '"This document" cites nothing once the template stands in the registry',
            level=Level.WARNING,
            field="references",
            line=ctx.get_line("references"),
            witness=to_printable(value),
            fix=f"write {instead}, and the RFC's number when there is one",
        )


def check_expiry(ctx: CheckContext) -> Faults:
    """T7: when the draft expires, and with it the entry is to be updated (row U4)."""
    document = ctx.document
    if document.kind is not DocumentKind.DRAFT and not (document.dated and document.expires):
        return
    computed = None if document.dated is None else document.dated + DRAFT_LIFETIME
    end = document.expires or computed
    if end is None:
        yield make_unchecked("when the draft expires", "it bears no date")
        return
    if computed is not None and document.expires is not None and abs((computed - document.expires).days) > 1:
        yield make_fault(
            "draft-expiry-wrong",
            f"the draft says that it expires on {document.expires}; 185 days after its date is {computed}",
            level=Level.WARNING,
            line=1,
            fix=f"write `Expires: {computed.day} {computed:%B %Y}`",
        )
    past = ctx.today is not None and end < ctx.today
    yield make_fault(
        "draft-expired" if past else "draft-expires",
        f"the draft {'expired' if past else 'expires'} on {end}; the entry is to be updated then (row U4)",
        level=Level.HINT,
        line=1,
        fix="publish a new version, or cite the document that replaces it",
    )
