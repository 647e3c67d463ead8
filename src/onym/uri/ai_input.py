"""Convert what a person typed to an ai URI, with warnings about misleading characters.

    >>> typed = parse_user_input(" ai://Bücher.example/straße ")
    >>> str(typed.uri), typed.unicode
    ('ai://xn--bcher-kva.example/stra%C3%9Fe', 'ai://bücher.example/straße')

The host is mapped by UTS 46 (non-transitional, STD3) and IDNA 2008; the rest is percent-encoded. The result
must follow every rule of `AIURI.canonical`: full-width digits become the address that they look like, and
that address is rejected. Show both forms and the warnings to the person before you use the name.

The script of a letter is the first word of its Unicode name ("CYRILLIC SMALL LETTER A"), because the
standard library does not have the Script property. Digits, marks and modifier letters have no script.
Scripts whose names start with the same word (OLD ITALIC, OLD TURKIC) count as one. Look-alikes within one
script, and whole labels in another script, are not detected: they need the tables of UTS 39.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from onym.errors import AIURIError, URIError
from onym.uri.ai import AIURI, CANONICAL_CLAUSE, INVISIBLE, MAX_CANONICAL_LENGTH
from onym.uri.iri import IRIConversion, convert_iri, to_iri

#: scripts that one label may mix: "highly restrictive" of UTS 39 5.2
_TOGETHER: Final = (
    frozenset({"LATIN", "HAN", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "HAN", "BOPOMOFO"}),
    frozenset({"LATIN", "HAN", "HANGUL"}),
)
_HAN: Final = frozenset({"CJK", "IDEOGRAPHIC"})
_LETTERS: Final = frozenset({"Lu", "Ll", "Lt", "Lo"})
_ENCODED_AUTHORITY = re.compile("[^/?#%]*//[^/?#%]*(?=%)").match


@dataclass(frozen=True, slots=True)
class InputWarning:
    """A warning that a person should see before using the name.

    `code` is `mixed-script`, `mapped-host` or `invisible`; `part` is the label, "host" or "query".
    """

    code: str
    message: str
    part: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInput:
    """The canonical URI, without fragment, its form for people, and warnings about it."""

    uri: AIURI
    unicode: str
    warnings: tuple[InputWarning, ...] = ()


def parse_user_input(text: str) -> UserInput:
    """Convert `text`, as a person typed it, to an ai URI. White space around it is ignored.

    Raises URISyntaxError for text that is not an IRI (`uri.bad-idna` for a host that IDNA rejects),
    AIURIError for text without a canonical form (also a `%` in the authority), URILimitError above 2,048
    characters. Offsets count in `text`.
    """
    if not isinstance(text, str):
        raise TypeError("the text must be a str")
    typed = text.strip()
    lead = len(text) - len(text.lstrip())
    try:
        _require_unencoded_authority(typed)
        conversion = convert_iri(typed, max_length=MAX_CANONICAL_LENGTH)
        uri = _parse_target(conversion)
    except URIError as error:
        error.offset = (error.offset or 0) + lead
        if error.component == "scheme":
            error.hint = "an ai URI starts with ai:"
        raise
    return UserInput(uri=uri, unicode=to_iri(str(uri)), warnings=tuple(_find_warnings(conversion, uri)))


def _require_unencoded_authority(typed: str) -> None:
    encoded = _ENCODED_AUTHORITY(typed)
    if encoded is not None:
        raise AIURIError(
            "the authority contains a percent sign",
            code="ai.bad-host",
            component="host",
            offset=encoded.end(),
            clause=CANONICAL_CLAUSE,
            hint="write the name itself, in Unicode or as its A-labels",
        )


def _parse_target(conversion: IRIConversion) -> AIURI:
    try:
        return AIURI.parse(conversion.uri).target
    except URIError as error:
        error.offset = _find_typed_offset(conversion, error.offset or 0)
        raise


def _find_typed_offset(conversion: IRIConversion, offset: int) -> int:
    """The position in the typed text of a position in the URI; up to the end of the host the two agree."""
    at = end = 0
    if conversion.host is not None and conversion.ascii_host is not None:
        at = conversion.uri.index("//") + 2
        end = at + len(conversion.ascii_host)
        at += len(conversion.host)
    if offset < end:
        return offset
    while end < offset:
        character = conversion.iri[at]
        end += 1 if character.isascii() else 3 * len(character.encode("utf-8"))
        at += 1
    return at


def _find_warnings(conversion: IRIConversion, uri: AIURI) -> Iterator[InputWarning]:
    typed, host = conversion.host, uri.host
    if typed is not None and host is not None:
        readable = to_iri(f"//{host}").removeprefix("//")
        if _has_invisible(typed) or _has_invisible(readable):
            yield InputWarning("invisible", "the host contains invisible characters", "host")
        if unicodedata.normalize("NFC", typed.lower()) not in (host, readable):
            yield InputWarning("mapped-host", "the host differs from what was typed", "host")
        yield from _find_mixed_scripts(readable)
    if any(_has_invisible(value) for _, value in uri.parameters):
        yield InputWarning("invisible", "a parameter contains invisible characters", "query")


def _find_mixed_scripts(host: str) -> Iterator[InputWarning]:
    for label in host.split("."):
        scripts = frozenset(filter(None, map(_get_script, label)))
        if len(scripts) > 1 and not any(scripts <= together for together in _TOGETHER):
            named = " and ".join(sorted(name.capitalize() for name in scripts))
            yield InputWarning("mixed-script", f"the label mixes {named} letters", label)


def _get_script(character: str) -> str | None:
    """The first word of a letter's name, HAN for all ideographs; None for characters without a script."""
    if unicodedata.category(character) not in _LETTERS:
        return None
    word = unicodedata.name(character, "UNKNOWN").partition(" ")[0]
    return "HAN" if word in _HAN else word


def _has_invisible(text: str) -> bool:
    """Whether `text` contains a character that has no glyph or moves its neighbours."""
    if text.isascii():
        return False
    return bool(INVISIBLE.search(text)) or "Cf" in map(unicodedata.category, text)
