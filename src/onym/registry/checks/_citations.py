"""Checks T4 and T7: citations, cited sections, and the expiry date of a draft."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from onym.registry.checks import context
from onym.registry.documents.types import Citation, DocumentKind
from onym.registry.registries import DRAFT_LIFETIME

if TYPE_CHECKING:
    from onym.registry.iana import RFC

#: citations whose sections are checked
MAX_CITED: Final = 2_000
#: findings of one kind
MAX_LISTED: Final = 40
#: numbers after the last RFC of an incomplete list that may be newer RFCs
MARGIN: Final = 1_000
#: RFCs in a row that each obsolete the one before
_MAX_CHAIN: Final = 10

_WORDS: Final = re.compile(r"[a-z]{3,}")
_ENDING: Final = re.compile(r"(?:(?<=^regist)\w+|ings?|ed|ations?|es|s)$")
#: sections of every document: their titles do not show that another document is meant
_EVERYWHERE: Final = frozenset({"iana considerations", "security considerations"})
_PLAIN: Final = frozenset(
    ["and", "the", "for", "of", "with", "uri", "uris", "url", "definition", "defined", "well"]
)
_RFC: Final = re.compile(r"^RFC[ -]?0*([0-9]{1,5})$", re.IGNORECASE)
_RFC_TEXT: Final = re.compile(r"\bRFC[ -]?0*([0-9]{1,5})\b")
_DRAFT: Final = re.compile(r"\bdraft-[a-z0-9]+(?:-[a-z0-9]+){1,12}\b")
_THIS: Final = re.compile(r"\bthis (?:document|specification|memo|draft|internet-draft)\b", re.IGNORECASE)
#: lines in the head of a document that name what it replaces
_HEAD: Final = re.compile(r"^ *(?:Obsoletes|Updates):", re.IGNORECASE)
#: marks around the name of an RFC in text, Markdown and XML
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
#: characters of a line that are searched
_WIDEST: Final = 400


def check_citations(ctx: context.CheckContext) -> context.Findings:
    """T4: keys resolve both ways; cited RFCs and sections exist, are current and fit the text."""
    yield from _check_keys(ctx)
    yield from _check_drafts(ctx)
    yield from _check_rfcs(ctx)
    yield from _check_sections(ctx)
    value = ctx.get_field("references")
    if _THIS.search(value) and ctx.document.kind is not DocumentKind.RFC:
        name = (ctx.document.name or "").removesuffix("-latest")
        instead = f"`{context.to_printable(name)}`" if name else "the name of the document, with its date"
        yield ctx.report(
            "this-document",
            '"This document" is not a citation in the registry, which shows only the template',
            level=context.Level.WARNING,
            at="references",
            witness=value,
            fix=f"write {instead}, and the RFC's number when there is one",
        )


def _check_keys(ctx: context.CheckContext) -> context.Findings:
    cited, listed = ctx.document.citations, ctx.document.references
    if not listed:
        cited = tuple(citation for citation in cited if not citation.bare)
        if cited and ctx.document.kind is not DocumentKind.TEMPLATE:
            count = len({citation.key for citation in cited})
            keys = "1 key is" if count == 1 else f"{count} keys are"
            yield ctx.report(
                "no-reference-list",
                f"{keys} cited, but no list of references was found",
                level=context.Level.WARNING,
                line=cited[0].line,
                fix="add a section `References` with a full citation for each key",
            )
        return
    known = {_normalize_key(reference.key) for reference in listed}
    used = {_normalize_key(citation.key) for citation in cited}
    missing = {
        key: citation
        for citation in reversed(cited)
        if (key := _normalize_key(citation.key)) not in known and not citation.bare
    }
    for citation in sorted(missing.values(), key=lambda citation: citation.line)[:MAX_LISTED]:
        key = context.to_printable(citation.key)
        yield ctx.report(
            "citation-unlisted",
            f"[{key}] is cited but not in the list of references",
            # a template may come from a document that lists it
            level=context.Level.ERROR if ctx.is_specification else context.Level.WARNING,
            line=citation.line,
            witness=f"[{citation.key}]",
            fix=f"add `[{key}]` with its full citation to the references",
        )
    # a reference in the template's field is cited by being there
    value = None if ctx.template is None else ctx.template.values.get("references")
    lines = range(0) if value is None else range(value.line, value.line + value.text.count("\n") + 2)
    field = ctx.get_field("references")
    uncited = [
        reference
        for reference in listed
        if _normalize_key(reference.key) not in used
        and not (reference.line in lines and f"[{reference.key}]" in field)
    ]
    for reference in uncited[:MAX_LISTED]:
        yield ctx.report(
            "reference-uncited",
            f"[{context.to_printable(reference.key)}] is listed but never cited",
            level=context.Level.WARNING,
            line=reference.line,
            witness=f"[{reference.key}]",
            fix="cite it in the text that uses it, or remove it",
        )


def _normalize_key(key: str) -> str:
    return re.sub(r"[\s-]", "", key).lower()


def _check_drafts(ctx: context.CheckContext) -> context.Findings:
    """Report Internet-Drafts that the text names and the references do not have."""
    own = _strip_version(ctx.document.name or "")
    listed = " ".join(f"{reference.key} {reference.text}" for reference in ctx.document.references)
    listed += " " + ctx.get_field("references")
    offsets: dict[str, int] = {}
    for match in _DRAFT.finditer(ctx.reading.text):
        if len(offsets) < MAX_LISTED:
            offsets.setdefault(match[0], match.start())
    for name, offset in offsets.items():
        stem = _strip_version(name)
        if stem != own and stem not in listed and (ctx.document.references or ctx.template is not None):
            yield ctx.report(
                "draft-unlisted",
                f"{context.to_printable(name)} is named but not in the list of references",
                level=context.Level.WARNING,
                line=ctx.reading.get_line(offset),
                witness=name,
                fix="add it to the references, as work in progress",
            )


def _strip_version(name: str) -> str:
    return re.sub(r"-(?:\d\d|latest)$", "", name)


def _check_rfcs(ctx: context.CheckContext) -> context.Findings:
    if not ctx.known.rfcs:
        yield ctx.report_unchecked(
            "whether cited RFCs exist and are current", "no index of RFCs is available"
        )
        return
    last = max(ctx.known.rfcs) + (0 if ctx.known.all_rfcs else MARGIN)
    unknown: list[str] = []
    for number, line in _iter_cited_rfcs(ctx):
        row = ctx.known.rfcs.get(number)
        if row is None and (ctx.known.all_rfcs or number > last or number == 0):
            yield ctx.report(
                "rfc-unknown",
                f"RFC {number} does not exist",
                level=context.Level.ERROR,
                line=line,
                witness=f"RFC {number}",
                fix="correct the number",
            )
        elif row is None:
            unknown.append(str(number))
        elif row.obsoleted_by and ctx.document.name not in {f"RFC {newer}" for newer in row.obsoleted_by}:
            *others, last_one = (f"RFC {newer}" for newer in _find_newest(ctx, row))
            newest = f"{', '.join(others)} and {last_one}" if others else last_one
            yield ctx.report(
                "rfc-obsolete",
                f"RFC {number} is obsolete: see {newest}",
                level=context.Level.WARNING,
                line=line,
                witness=f"RFC {number}",
                fix=f"cite {newest}, unless you mean the old text",
            )
    if unknown:
        subject = f"whether RFC {', '.join(unknown[:MAX_LISTED])} exist and are current"
        yield ctx.report_unchecked(subject, "the shipped list of RFCs is not complete")


def _find_newest(ctx: context.CheckContext, row: RFC) -> list[int]:
    """Return the RFCs that replace it now; its direct successors may be obsolete too."""
    waiting, seen, newest = list(row.obsoleted_by), {row.number}, []
    while waiting and len(seen) <= _MAX_CHAIN:
        number = waiting.pop(0)
        if number in seen:
            continue
        seen.add(number)
        newer = ctx.known.rfcs.get(number)
        if newer is not None and newer.obsoleted_by:
            waiting += newer.obsoleted_by
        else:
            newest.append(number)
    return sorted(newest) or list(row.obsoleted_by)


def _iter_cited_rfcs(ctx: context.CheckContext) -> Iterator[tuple[int, int | None]]:
    """Yield the number of each cited RFC once, with the line of its first citation."""
    lines: dict[int, int | None] = {}
    for citation in ctx.document.citations:
        match = _RFC.match(citation.key)
        if match and not _is_replaced(ctx, citation, int(match[1])):
            lines.setdefault(int(match[1]), citation.line)
    for match in _RFC_TEXT.finditer(ctx.get_field("references")[:20_000]):
        lines.setdefault(int(match[1]), ctx.get_line("references"))
    yield from list(lines.items())[:200]


def _is_replaced(ctx: context.CheckContext, citation: Citation, number: int) -> bool:
    """Return whether the text cites the RFC as one that this or another document replaces."""
    row = ctx.known.rfcs.get(number)
    lines, line = ctx.reading.lines, citation.line
    if row is None or not row.obsoleted_by or line > len(lines):
        return False
    if _HEAD.match(lines[line - 1]):
        return True
    near = context.squeeze_spaces(" ".join(row[:_WIDEST] for row in lines[max(line - 2, 0) : line + 1]))
    return re.search(_REPLACES % {"number": number}, near, re.IGNORECASE) is not None


def _check_sections(ctx: context.CheckContext) -> context.Findings:
    """Check the cited sections of RFCs whose section titles are known."""
    for citation in ctx.document.citations[:MAX_CITED]:
        match = _RFC.match(citation.key)
        titles = context.load_section_titles().get(int(match[1])) if match else None
        if match is None or titles is None or citation.section is None:
            continue
        number = citation.section.rstrip(".")
        if number in titles:
            yield from _check_title_fits(ctx, citation, number, titles)
        else:
            yield ctx.report(
                "section-unknown",
                f"RFC {match[1]} has no section {context.to_printable(number)}",
                level=context.Level.ERROR,
                line=citation.line,
                witness=f"[{context.to_printable(citation.key)}] Section {context.to_printable(number)}",
                fix="correct the number of the section",
            )


def _check_title_fits(
    ctx: context.CheckContext, cited: Citation, number: str, titles: Mapping[str, str]
) -> context.Findings:
    """Warn if the words around the citation are the title of another section.

    Words prove nothing, so it is only a warning; an appendix may be about anything.
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
        and not (number.startswith(f"{other}.") or other.startswith(f"{number}."))
    ]
    if better:
        _, other, title = max(better)
        key = context.to_printable(cited.key)
        yield ctx.report(
            "section-does-not-fit",
            f'[{key}] Section {number} is "{titles[number]}"; the text is about "{title}", Section {other}',
            level=context.Level.WARNING,
            line=cited.line,
            witness=f"[{key}] Section {number}",
            fix=f"write `[{key}] Section {other}`",
        )


def _stem_words(text: str) -> frozenset[str]:
    return frozenset(_ENDING.sub("", word) for word in _WORDS.findall(text.lower()) if word not in _PLAIN)


def check_expiry(ctx: context.CheckContext) -> context.Findings:
    """T7: the day on which the draft expires and the entry must be updated (rule U4)."""
    document = ctx.document
    if document.kind is not DocumentKind.DRAFT and not (document.dated and document.expires):
        return
    computed = None if document.dated is None else document.dated + DRAFT_LIFETIME
    end = document.expires or computed
    if end is None:
        yield ctx.report_unchecked("when the draft expires", "the draft has no date")
        return
    if computed is not None and document.expires is not None and abs((computed - document.expires).days) > 1:
        yield ctx.report(
            "draft-expiry-wrong",
            f"the draft expires on {document.expires}, but 185 days after its date is {computed}",
            level=context.Level.WARNING,
            line=1,
            fix=f"write `Expires: {computed.day} {computed:%B %Y}`",
        )
    past = ctx.today is not None and end < ctx.today
    yield ctx.report(
        "draft-expired" if past else "draft-expires",
        f"the draft {'expired' if past else 'expires'} on {end}; then the entry must be updated",
        level=context.Level.HINT,
        line=1,
        fix="publish a new version, or cite the document that replaces it",
    )
