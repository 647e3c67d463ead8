"""An ai URI from what a person typed: mapped first, then judged as any other.

    >>> typed = from_typed(" ai://Bücher.example/straße ")
    >>> str(typed.uri), typed.unicode
    ('ai://xn--bcher-kva.example/stra%C3%9Fe', 'ai://bücher.example/straße')

The host takes the UTS-46 mapping (non-transitional, STD3) and IDNA 2008; the rest is percent-encoded. Every
rule of `AIURI.canonical` holds for the result: full-width digits become the address that they look like, and
that is refused. Show a person both forms, and the warnings, before anything is done with the name.

Scripts are told apart by the first word of a letter's Unicode name ("CYRILLIC SMALL LETTER A"), which the
standard library has; its Script property it has not. Digits, marks and modifier letters count as no script.
Scripts whose names begin alike (OLD ITALIC, OLD TURKIC) count as one. Look-alikes within one script, or of a
whole label in another one, are not found: they would need the tables of UTS 39.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onym.errors import AIURIError, URIError
from onym.uri._ai_canonical import CLAUSE, INVISIBLE, MAX_LENGTH
from onym.uri.ai import AIURI
from onym.uri.iri import convert, to_iri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onym.uri.iri import IRIConversion

__all__ = ["Typed", "TypedWarning", "from_typed"]

#: scripts that one label may mix: "highly restrictive" of UTS 39 5.2
_TOGETHER: Final = (
    frozenset({"LATIN", "HAN", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "HAN", "BOPOMOFO"}),
    frozenset({"LATIN", "HAN", "HANGUL"}),
)
_HAN: Final = frozenset({"CJK", "IDEOGRAPHIC"})
_LETTERS: Final = frozenset({"Lu", "Ll", "Lt", "Lo"})
_ENCODED_AUTHORITY = re.compile("[^/?#%]*//[^/?#%]*(?=%)").match


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedWarning:
    """What a person should see before going on.

    `code` is `mixed-script`, `mapped-host` or `invisible`; `part` is the label it is about, or "host" or
    "query".
    """

    code: str
    message: str
    part: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The canonical URI, without fragment; the same as a person reads it; and what to warn of."""

    uri: AIURI
    unicode: str
    warnings: tuple[TypedWarning, ...] = ()


def from_typed(text: str) -> Typed:
    """The ai URI that somebody meant by `text`, white space around it ignored.

    Raises URISyntaxError for what is no IRI (`uri.bad-idna` for a host that IDNA refuses), AIURIError for
    what has no canonical form (a `%` in the authority too), URILimitError above 2,048 characters. Offsets
    count in `text`.
    """
    if not isinstance(text, str):
        raise TypeError("what was typed is str")
    typed = text.strip()
    lead = len(text) - len(text.lstrip())
    try:
        _check_authority(typed)
        conversion = convert(typed, max_length=MAX_LENGTH)
        uri = _target(conversion)
    except URIError as error:
        error.offset = (error.offset or 0) + lead
        if error.component == "scheme":
            error.hint = "an ai URI starts with ai:"
        raise
    return Typed(uri=uri, unicode=to_iri(str(uri)), warnings=tuple(_warnings(conversion, uri)))


def _check_authority(typed: str) -> None:
    encoded = _ENCODED_AUTHORITY(typed)
    if encoded is not None:
        raise AIURIError(
            "a percent sign stands in the authority",
            code="ai.bad-host",
            component="host",
            offset=encoded.end(),
            clause=CLAUSE,
            hint="write the name itself, in Unicode or as its A-labels",
        )


def _target(conversion: IRIConversion) -> AIURI:
    try:
        return AIURI.parse(conversion.uri).target
    except URIError as error:
        error.offset = _typed_offset(conversion, error.offset or 0)
        raise


def _typed_offset(conversion: IRIConversion, offset: int) -> int:
    """Where in the typed text a position of the URI is; up to the end of the host the two agree."""
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


def _warnings(conversion: IRIConversion, uri: AIURI) -> Iterator[TypedWarning]:
    typed, host = conversion.host, uri.host
    if typed is not None and host is not None:
        readable = to_iri(f"//{host}").removeprefix("//")
        if _unseen(typed) or _unseen(readable):
            yield TypedWarning(
                code="invisible", message="the host holds characters that are not seen", part="host"
            )
        if unicodedata.normalize("NFC", typed.lower()) not in (host, readable):
            yield TypedWarning(
                code="mapped-host", message="the host is read otherwise than it was typed", part="host"
            )
        yield from _mixed(readable)
    if any(_unseen(value) for _, value in uri.parameters):
        yield TypedWarning(
            code="invisible", message="a parameter holds characters that are not seen", part="query"
        )


def _mixed(host: str) -> Iterator[TypedWarning]:
    for label in host.split("."):
        scripts = frozenset(filter(None, map(_script, label)))
        if len(scripts) > 1 and not any(scripts <= together for together in _TOGETHER):
            named = " and ".join(sorted(name.capitalize() for name in scripts))
            yield TypedWarning(code="mixed-script", message=f"the label mixes {named} letters", part=label)


def _script(character: str) -> str | None:
    """The first word of a letter's name, Han for all ideographs; None for what belongs to no script."""
    if unicodedata.category(character) not in _LETTERS:
        return None
    word = unicodedata.name(character, "UNKNOWN").partition(" ")[0]
    return "HAN" if word in _HAN else word


def _unseen(text: str) -> bool:
    """Whether a character stands in `text` that is drawn as nothing, or moves what is beside it."""
    if text.isascii():
        return False
    return bool(INVISIBLE.search(text)) or any(unicodedata.category(each) == "Cf" for each in text)
