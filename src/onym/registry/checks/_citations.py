"""T4 and T7: do citations lead somewhere, and how long does the draft hold?"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from onym.registry.checks._context import Context, Faults, fault, shown, squeezed, unchecked
from onym.registry.checks.known import section_titles
from onym.registry.checks.report import Level
from onym.registry.documents.types import Citation, DocumentKind
from onym.registry.profiles import DRAFT_LIFE

__all__ = ["citations", "expiry"]

#: how many findings of one kind are listed
MAX_LISTED: Final = 40
#: numbers beyond the last RFC of an incomplete list that may be newer RFCs
MARGIN: Final = 1_000
#: characters around a citation that its title is looked for in
_AROUND: Final = 160

_RFC: Final = re.compile(r"^RFC[ -]?0*([0-9]{1,5})$", re.IGNORECASE)
_RFC_TEXT: Final = re.compile(r"\bRFC[ -]?0*([0-9]{1,5})\b")
_DRAFT: Final = re.compile(r"\bdraft-[a-z0-9]+(?:-[a-z0-9]+){1,12}\b")
_THIS: Final = re.compile(r"\bthis (?:document|specification|memo|draft|internet-draft)\b", re.IGNORECASE)
_WORDS: Final = re.compile(r"[a-z]{3,}")
_ENDING: Final = re.compile(r"(?:ings?|ed|ations?|es|s)$")
_PLAIN: Final = frozenset(
    {"and", "the", "for", "of", "with", "uri", "uris", "url", "definition", "defined", "well"}
)


def citations(ctx: Context) -> Faults:
    """T4: keys resolve both ways, RFCs exist and stand, cited sections exist and are about the matter."""
    yield from _keys(ctx)
    yield from _drafts(ctx)
    yield from _rfcs(ctx)
    yield from _sections(ctx)
    yield from _this_document(ctx)


def _keys(ctx: Context) -> Faults:
    cited, listed = ctx.document.citations, ctx.document.references
    if not listed:
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
        _key(each.key): each
        for each in reversed(cited)
        if _key(each.key) not in known and _is_key(ctx, each.key)
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
    for entry in [each for each in listed if _key(each.key) not in used][:MAX_LISTED]:
        yield fault(
            "reference-uncited",
            f"[{shown(entry.key)}] is listed and never cited",
            level=Level.WARNING,
            line=entry.line,
            witness=f"[{shown(entry.key)}]",
            fix="cite it where it is used, or take it out",
        )


def _is_key(ctx: Context, key: str) -> bool:
    """Is it a key of a list, and not an RFC or a draft that is called by its own name?"""
    if not (_RFC.match(key) or _DRAFT.match(key)):
        return True
    text_kinds = (DocumentKind.TEMPLATE, DocumentKind.DRAFT, DocumentKind.RFC)
    return ctx.document.kind not in text_kinds or f"[{key}]" in ctx.document.text


def _key(key: str) -> str:
    return re.sub(r"[\s-]", "", key).lower()


def _drafts(ctx: Context) -> Faults:
    """Internet-Drafts that the text names and no reference holds."""
    own = _stem(ctx.document.name or "")
    listed = " ".join(f"{each.key} {each.text}" for each in ctx.document.references)
    listed += " " + ctx.value("references")
    seen: dict[str, int] = {}
    for found in _DRAFT.finditer(ctx.document.text):
        if len(seen) < MAX_LISTED:
            seen.setdefault(found[0], found.start())
    places = _Places(ctx.document.text)
    for name, at in seen.items():
        stem = _stem(name)
        if stem != own and stem not in listed and (ctx.document.references or ctx.template is not None):
            yield fault(
                "draft-unlisted",
                f"{shown(name)} is named and not in the list of references",
                level=Level.WARNING,
                line=places.line(at),
                witness=shown(name),
                fix="add it to the references, as work in progress",
            )


def _stem(name: str) -> str:
    return re.sub(r"-\d\d$", "", name)


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
        elif row.obsoleted_by:
            newer = " and ".join(f"RFC {each}" for each in row.obsoleted_by)
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


def _cited_rfcs(ctx: Context) -> Iterator[tuple[int, int | None]]:
    """Each RFC once, with the first place that cites it."""
    found: dict[int, int | None] = {}
    for each in ctx.document.citations:
        match = _RFC.match(each.key)
        if match:
            found.setdefault(int(match[1]), each.line)
    for match in _RFC_TEXT.finditer(ctx.value("references")[:20_000]):
        found.setdefault(int(match[1]), ctx.line("references"))
    yield from list(found.items())[:200]


def _sections(ctx: Context) -> Faults:
    places = _Places(ctx.document.text)
    for each in ctx.document.citations[:2_000]:
        match = _RFC.match(each.key)
        titles = section_titles().get(int(match[1])) if match else None
        if titles is None or each.section is None:
            continue
        number = each.section.rstrip(".")
        if number not in titles:
            yield fault(
                "section-unknown",
                f"RFC {match[1] if match else ''} has no section {shown(number)}",
                level=Level.ERROR,
                line=each.line,
                witness=f"[{shown(each.key)}] Section {shown(number)}",
                fix="correct the number of the section",
            )
            continue
        yield from _fits(ctx, each, number, titles, places)


def _fits(ctx: Context, cited: Citation, number: str, titles: Mapping[str, str], places: _Places) -> Faults:
    """The words around the citation are another section's title, and share none with the cited one's."""
    around = _stems(places.around(cited))
    if _stems(titles[number]) & around:
        return
    better = [
        (len(words), other, title)
        for other, title in titles.items()
        if len(words := _stems(title)) >= 2 and words <= around
    ]
    if better:
        _, other, title = max(better)
        yield fault(
            "section-does-not-fit",
            f'[{shown(cited.key)}] Section {number} is "{titles[number]}"; '
            f'the text is about "{title}", Section {other}',
            level=Level.ERROR,
            line=cited.line,
            witness=f"[{shown(cited.key)}] Section {number}",
            fix=f"write `[{shown(cited.key)}] Section {other}`",
        )


def _stems(text: str) -> frozenset[str]:
    return frozenset(_ENDING.sub("", each) for each in _WORDS.findall(text.lower()) if each not in _PLAIN)


def _this_document(ctx: Context) -> Faults:
    value = ctx.value("references")
    if _THIS.search(value) and ctx.document.kind is not DocumentKind.RFC:
        name = ctx.document.name
        instead = f"`{shown(name)}`" if name else "the name of the document, with its date"
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
            fix=f"write `Expires: {computed}`",
        )
    past = ctx.today is not None and end < ctx.today
    yield fault(
        "draft-expired" if past else "draft-expires",
        f"the draft {'expired' if past else 'expires'} on {end}; the entry is to be updated then (row U4)",
        level=Level.HINT,
        line=1,
        fix="publish a new version, or cite the document that replaces it",
    )


@dataclass(slots=True)
class _Places:
    """Lines of a text by offset, and the words around a line."""

    text: str
    _starts: list[int] | None = None

    def starts(self) -> list[int]:
        """Where each line begins."""
        if self._starts is None:
            self._starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        return self._starts

    def line(self, offset: int) -> int:
        """The line of an offset, from 1."""
        return bisect_right(self.starts(), offset)

    def around(self, cited: Citation) -> str:
        """What stands around a citation: the line and its neighbours, cut to the sentence."""
        starts = self.starts()
        first = starts[max(min(cited.line, len(starts)) - 4, 0)]
        last = starts[cited.line + 1] if cited.line + 1 < len(starts) else len(self.text)
        window = squeezed(self.text[first:last])
        at = window.find(cited.section or cited.key)
        before = window[:at].rpartition(". ")[2] if at >= 0 else window
        after = window[at : at + _AROUND].partition(". ")[0] if at >= 0 else ""
        return before[-2 * _AROUND :] + after
