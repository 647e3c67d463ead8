"""T4, of sections: do the cited ones exist, and are they about what the text says?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from onym.registry.checks._context import Context, Faults, fault, shown
from onym.registry.checks.known import section_titles
from onym.registry.checks.report import Level
from onym.registry.documents.types import Citation

__all__ = ["sections"]

#: how many citations are looked at
MAX_CITED: Final = 2_000

_RFC: Final = re.compile(r"^RFC[ -]?0*([0-9]{1,5})$", re.IGNORECASE)
_WORDS: Final = re.compile(r"[a-z]{3,}")
_ENDING: Final = re.compile(r"(?:(?<=^regist)\w+|ings?|ed|ations?|es|s)$")
#: sections that every document has: to speak of one's own is not to cite another's
_EVERYWHERE: Final = frozenset({"iana considerations", "security considerations"})
_PLAIN: Final = frozenset(
    {"and", "the", "for", "of", "with", "uri", "uris", "url", "definition", "defined", "well"}
)


def sections(ctx: Context) -> Faults:
    """Sections of RFCs whose titles are known: unknown numbers, and numbers that do not fit the words."""
    for each in ctx.document.citations[:MAX_CITED]:
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
        yield from _fits(ctx, each, number, titles)


def _fits(ctx: Context, cited: Citation, number: str, titles: Mapping[str, str]) -> Faults:
    """The words around the citation are another section's title, and share none with the cited one's.

    Words alone prove nothing, so it is a warning; and an appendix may hold anything.
    """
    around = _stems(ctx.reading.sentence(cited))
    if number[0].isalpha() or _stems(titles[number]) & around:
        return
    better = [
        (len(words), other, title)
        for other, title in titles.items()
        if title.lower() not in _EVERYWHERE
        and len(words := _stems(title)) >= 2
        and words <= around
        and not _related(number, other)
    ]
    if better:
        _, other, title = max(better)
        yield fault(
            "section-does-not-fit",
            f'[{shown(cited.key)}] Section {number} is "{titles[number]}"; '
            f'the text is about "{title}", Section {other}',
            level=Level.WARNING,
            line=cited.line,
            witness=f"[{shown(cited.key)}] Section {number}",
            fix=f"write `[{shown(cited.key)}] Section {other}`",
        )


def _related(one: str, other: str) -> bool:
    """Is one of the sections inside the other?"""
    return one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _stems(text: str) -> frozenset[str]:
    return frozenset(_ENDING.sub("", each) for each in _WORDS.findall(text.lower()) if each not in _PLAIN)
