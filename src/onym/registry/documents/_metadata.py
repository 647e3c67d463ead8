"""Document metadata: kind, name, date and expiry date."""

from __future__ import annotations

import re
from datetime import date
from pathlib import PurePath
from typing import Final

from onym.registry.documents._lines import MAX_TEXT, MONTHS
from onym.registry.documents.types import DocumentKind
from onym.registry.registries import DRAFT_LIFETIME

#: lines at the beginning of a document with its metadata, and characters of each
_HEAD: Final = 120
_CUT: Final = 400
#: rows with text that may have the mark of a draft; further down it may be from a reference
_TOP: Final = 3
_MONTH: Final = "|".join(MONTHS)
_DATE: Final = (
    rf"(?:(?P<day>[0-9]{{1,2}}) (?P<month>{_MONTH}),? (?P<year>[0-9]{{4}})"
    rf"|(?P<month2>{_MONTH}) (?P<day2>[0-9]{{1,2}}), (?P<year2>[0-9]{{4}})"
    r"|(?P<year3>[0-9]{4})-(?P<month3>[0-9]{2})-(?P<day3>[0-9]{2}))(?![0-9])"
)
_EXPIRES: Final = re.compile(rf"\b[Ee]xpires?(?: on)?:? {{1,40}}{_DATE}")
_ENDS_WITH_DATE: Final = re.compile(rf"(?:^|.*\s){_DATE}[ |]*\Z")
_MONTH_ALONE: Final = re.compile(rf"(?:.*\s)?(?P<month>{_MONTH}) (?P<year>[0-9]{{4}})[ |]*\Z")
_DRAFT: Final = re.compile(
    r"(?<![a-z0-9-])(?P<name>draft-[a-z0-9]{1,60}(?:-[a-z0-9]{1,60}){1,20}-[0-9]{2})(?![a-z0-9])"
)
_DOCNAME: Final = re.compile(r"docname: (?P<name>draft-[a-z0-9-]{1,200})\Z")
_RFC: Final = re.compile(r"Request for Comments: {1,5}(?P<number>[0-9]{1,5})\b")
#: the header of a page, spaced over the line
_RFC_HEADER: Final = re.compile(
    rf"^RFC (?P<number>[0-9]{{1,5}})  [^\n]{{1,200}}  (?:{_MONTH}) [0-9]{{4}}\r?$", re.MULTILINE
)
_RFC_FILE: Final = re.compile(r"rfc(?P<number>[0-9]{1,5})\.(?:txt|xml)\Z")
_XML: Final = ("<?xml", "<rfc", "<!DOCTYPE")
_DRAFT_MARKS: Final = ("Internet-Draft", "INTERNET-DRAFT", "INTERNET DRAFT", "This Internet-Draft")
#: other marks of a draft, which references to drafts do not have
_DRAFT_TOO: Final = re.compile(
    r"Expires?\b|Intended [Ss]tatus|Status of [Tt]his Memo|Abstract\Z|Network Working Group"
    r"|Copyright Notice\Z|Table of Contents\Z|(?:1\.? )?Introduction\Z",
    re.IGNORECASE,
)
_MARKDOWN: Final = re.compile(r"#{1,6} \S|---\Z|\*\*[^*]{2,80}\*\*|__[^_]{2,80}__|[`~]{3}|\{:")


def _list_head_rows(text: str) -> list[str]:
    rows = text[: min(MAX_TEXT, _HEAD * 2_000)].splitlines()[:_HEAD]
    return [" ".join(row[:_CUT].replace("\ufeff", "").split()).strip("¶ ") for row in rows]


def detect_kind(text: str) -> DocumentKind:
    """Return the kind that a text looks like."""
    if _is_xml(text):
        return DocumentKind.XML
    head = _list_head_rows(text)
    if _match_rfc(text, head) is not None:
        return DocumentKind.RFC
    if _is_draft(head):
        return DocumentKind.DRAFT
    if any(_MARKDOWN.match(row) for row in text.splitlines()):
        return DocumentKind.MARKDOWN
    return DocumentKind.TEMPLATE


def _is_draft(head: list[str]) -> bool:
    rows = [row for row in head if row]
    index = next((index for index, row in enumerate(rows) if row.startswith(_DRAFT_MARKS)), None)
    return index is not None and (index < _TOP or any(_DRAFT_TOO.match(row) for row in rows))


def _is_xml(text: str) -> bool:
    """Return whether a declaration or the root comes first, after any comments."""
    at = 0
    while True:
        rest = text[at : at + 1000].lstrip("\ufeff \t\r\n")
        if not rest.startswith("<!--"):
            return rest.startswith(_XML)
        end = text.find("-->", at)
        if end < 0:
            return False
        at = end + 3


def _match_rfc(text: str, head: list[str]) -> re.Match[str] | None:
    """Find the number of an RFC on its first page, or in the header of a later page."""
    first = next((match for row in head if (match := _RFC.match(row))), None)
    return first or _RFC_HEADER.search(text, 0, _HEAD * _CUT)


def find_name(text: str, kind: DocumentKind, source: str) -> str | None:
    """Return the draft's name with its version, or "RFC 7595"; if the text has none, that of the file."""
    head = _list_head_rows(text)
    file = PurePath(source[-_CUT:]).name
    if kind is DocumentKind.RFC:
        match = _match_rfc(text, head)
        return None if match is None else f"RFC {int(match['number'])}"
    if kind is DocumentKind.DRAFT:
        match = next((match for row in [*head, file] if (match := _DRAFT.search(row))), None)
        return None if match is None else match[0]
    match = _RFC_FILE.match(file)
    if match is not None:
        return f"RFC {int(match['number'])}"
    match = next((match for row in head if (match := _DOCNAME.match(row))), None) or _DRAFT.match(file)
    return None if match is None else match["name"]


def _parse_date(match: re.Match[str] | None) -> date | None:
    if match is None:
        return None
    group = match.groupdict()
    year = group["year"] or group["year2"] or group["year3"]
    day = group["day"] or group["day2"] or group["day3"]
    month = group["month"] or group["month2"]
    number = MONTHS.index(month) + 1 if month else int(group["month3"] or 0)
    try:
        return date(int(year or 0), number, int(day or 0))
    except ValueError:
        return None


def compute_expiry(dated: date | None) -> date | None:
    """Return the day on which a draft of this date expires, 185 days later."""
    try:
        return None if dated is None else dated + DRAFT_LIFETIME
    except OverflowError:
        return None


def find_dates(text: str, kind: DocumentKind) -> tuple[date | None, date | None]:
    """Return (dated, expires) of a plain text. If an RFC has only a month, its day is the first."""
    head = _list_head_rows(text)
    if kind is DocumentKind.RFC:
        return _find_rfc_date(head), None
    if kind is not DocumentKind.DRAFT:
        return None, None
    expires = next((day for row in head if (day := _parse_date(_EXPIRES.search(row)))), None)
    rows = [row for row in head if "xpire" not in row and "pdated" not in row]
    # the date may be at the end of the line of the expiry date
    rows += [row[match.end() :] for row in head if (match := _EXPIRES.search(row))]
    dated = next((day for row in rows if (day := _parse_date(_ENDS_WITH_DATE.match(row)))), None)
    if dated is None and expires is not None:
        # the text has only the month, and the expiry date gives the day
        dated = expires - DRAFT_LIFETIME if expires.year > 1 else None
    return dated, expires or compute_expiry(dated)


def _find_rfc_date(head: list[str]) -> date | None:
    for row in head[:30]:
        day = _parse_date(_ENDS_WITH_DATE.match(row))
        if day is not None:
            return day
        month = _MONTH_ALONE.match(row)
        if month is not None:
            return date(max(int(month["year"]), 1), MONTHS.index(month["month"]) + 1, 1)
    return None
