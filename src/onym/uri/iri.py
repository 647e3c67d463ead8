"""IRI to URI and back (RFC 3987 3), and ai names as people type them. Import it late: idna is slow.

    >>> to_uri("http://bücher.example/straße?q=ü")
    'http://xn--bcher-kva.example/stra%C3%9Fe?q=%C3%BC'
    >>> parse_user_input(" ai://Bücher.example/straße ").unicode
    'ai://bücher.example/straße'

The host is mapped in the same way for every scheme: triplets are decoded, then IDNA 2008 applies with the
UTS-46 mapping (non-transitional, STD3). The result is ASCII, so a guard that reads the URI judges the name
or address that will be looked up: `169。254。169。254` becomes `169.254.169.254`. A host of plain ASCII
labels is lower-cased and otherwise unchanged. The text after the host is not normalised (RFC 3987 3.1).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import idna

from onym.errors import AIURIError, URIError, URISyntaxError
from onym.uri.ai import AIURI, CANONICAL_CLAUSE, INVISIBLE, MAX_CANONICAL_LENGTH, is_a_label
from onym.uri.components import decode_component, make_syntax_error
from onym.uri.generic import MAX_LENGTH, URIOffsets, URIParts, compute_offsets, normalize_reg_name, split_uri

_UCSCHAR = (
    "\xa0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
    "\U00010000-\U0001fffd\U00020000-\U0002fffd\U00030000-\U0003fffd\U00040000-\U0004fffd"
    "\U00050000-\U0005fffd\U00060000-\U0006fffd\U00070000-\U0007fffd\U00080000-\U0008fffd"
    "\U00090000-\U0009fffd\U000a0000-\U000afffd\U000b0000-\U000bfffd\U000c0000-\U000cfffd"
    "\U000d0000-\U000dfffd\U000e1000-\U000efffd"
)
_IPRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
_BEYOND = re.compile("[^\x00-\x7f]")
_BEYOND_RUN = re.compile("[^\x00-\x7f]+")
_NOT_UCSCHAR = re.compile(f"[^\x00-\x7f{_UCSCHAR}]")
_NOT_IN_QUERY = re.compile(f"[^\x00-\x7f{_UCSCHAR}{_IPRIVATE}]")
_WIDE_TRIPLETS = re.compile("(?:%[89A-Fa-f][0-9A-Fa-f])+")
_A_LABEL = re.compile(r"(?:\A|\.)xn--", re.IGNORECASE)
# RFC 3987 4.1: formatting characters that would reorder what a reader sees
_BIDI = re.compile("[\u200e\u200f\u202a-\u202e]")


class IRIConversion(NamedTuple):
    """An IRI and the URI that it was converted to, to show both to a person.

    `host` is the host as typed, triplets decoded, `ascii_host` the host that will be looked up; both are None
    without an authority. `repr()` shows neither text: the userinfo may contain a password.
    """

    iri: str
    uri: str
    host: str | None
    ascii_host: str | None

    @property
    def changed(self) -> bool:
        """Whether the URI differs from what was typed."""
        return self.iri != self.uri

    def __repr__(self) -> str:
        return f"<IRIConversion host={self.host!r} ascii_host={self.ascii_host!r} changed={self.changed}>"


def to_uri(iri: str, *, max_length: int = MAX_LENGTH) -> str:
    """Convert an IRI (or IRI reference) to a URI (or relative reference).

    Raises URISyntaxError as `URI.parse` does, with offsets in `iri`, `uri.bad-idna` for a host that IDNA
    rejects, and URILimitError above `max_length` characters of `iri`.
    """
    return convert_iri(iri, max_length=max_length).uri


def convert_iri(iri: str, *, max_length: int = MAX_LENGTH) -> IRIConversion:
    """Convert as `to_uri` does, and return both forms of the text and of its host."""
    if not isinstance(iri, str):
        raise TypeError("an IRI is converted from str")
    # an ASCII letter replaces every other character, so that the grammar of RFC 3986 reads the IRI with the
    # same offsets; the differences are checked below
    plain = split_uri(_BEYOND.sub("x", iri), max_length=max_length)
    at = compute_offsets(plain)
    _require_iri_characters(iri, plain, at)
    if plain.host is None:
        return IRIConversion(iri, _encode_non_ascii(iri), None, None)
    end = at.host + len(plain.host)
    typed = iri[at.host : end]
    host = typed
    if plain.host_type not in ("IPv6address", "IPvFuture"):
        typed = decode_component(host, component="host", offset=at.host)
        host = _to_ascii_host(host, typed, at.host)
    return IRIConversion(
        iri, _encode_non_ascii(iri[: at.host]) + host + _encode_non_ascii(iri[end:]), typed, host
    )


def to_iri(uri: str) -> str:
    """A URI as a person reads it (RFC 3987 3.2): U-labels, and characters outside ASCII decoded.

    Triplets stay if they encode no character of an IRI, or an invisible one: blanks, formatting characters.
    Labels that IDNA rejects stay too. Raises URISyntaxError and URILimitError as `split_uri` does.
    """
    parts = split_uri(uri)
    start = end = 0
    if parts.host is not None:
        start = compute_offsets(parts).host
        end = start + len(parts.host)
    host = ".".join(map(_to_unicode_label, uri[start:end].split(".")))
    return _decode_triplets(uri[:start]) + host + _decode_triplets(uri[end:])


def _to_ascii_host(host: str, name: str, offset: int) -> str:
    """The name that will be looked up, for `host` as typed and its decoded form `name`."""
    if not name or (name.isascii() and not _A_LABEL.search(name)):
        return normalize_reg_name(host)
    try:
        return idna.encode(name, uts46=True, std3_rules=True).decode("ascii")
    except UnicodeError:  # its message contains the name
        message = "IDNA does not allow this host"
        raise make_syntax_error("uri.bad-idna", message, "host", offset, "RFC 5891 4") from None


def _to_unicode_label(label: str) -> str:
    return idna.ulabel(label) if label[:4].lower() == "xn--" and is_a_label(label.lower()) else label


def _decode_triplets(text: str) -> str:
    """RFC 3987 3.2, steps 2 to 4."""
    return _WIDE_TRIPLETS.sub(lambda run: _decode_triplet_run(run[0]), text)


def _decode_triplet_run(run: str) -> str:
    try:
        decoded = decode_component(run, component="text")
    except URISyntaxError:
        return run
    return "".join(
        character
        if character.isprintable() and not _NOT_UCSCHAR.match(character)
        else _encode_non_ascii(character)
        for character in decoded
    )


def _encode_non_ascii(text: str) -> str:
    """RFC 3987 3.1, step 2."""
    return _BEYOND_RUN.sub(lambda run: "".join(f"%{byte:02X}" for byte in run[0].encode("utf-8")), text)


def _require_iri_characters(iri: str, plain: URIParts, at: URIOffsets) -> None:
    """Raise for `ucschar` and `iprivate` in places that do not allow them, which `plain` cannot show."""
    if plain.scheme is not None and not iri[: len(plain.scheme)].isascii():
        raise make_syntax_error("uri.bad-scheme", "a scheme is ASCII", "scheme", 0, "RFC 3986 3.1")
    if plain.host_type == "IPvFuture" and not iri[at.host : at.host + len(plain.host or "")].isascii():
        message = "an IP literal is ASCII"
        raise make_syntax_error("uri.bad-ip-literal", message, "host", at.host, "RFC 3986 3.2.2")
    for stray in _NOT_UCSCHAR.finditer(iri):
        component = _find_component(stray.start(), at)
        if component == "host":
            continue  # IDNA judges it: it drops a variation selector that 2.2 forbids
        if component != "query" or _NOT_IN_QUERY.match(stray[0]):
            message = "this character is not allowed in an IRI"
            raise make_syntax_error("uri.bad-character", message, component, stray.start(), "RFC 3987 2.2")
    bidi = _BIDI.search(iri)
    if bidi is not None:
        message = "a bidirectional formatting character is not allowed in an IRI"
        component = _find_component(bidi.start(), at)
        raise make_syntax_error("uri.bad-character", message, component, bidi.start(), "RFC 3987 4.1")


def _find_component(position: int, at: URIOffsets) -> str:
    """The component that contains a position at or after the authority."""
    return [name for name, start in zip(at._fields, at, strict=True) if 0 <= start <= position][-1]


# The script of a letter is the first word of its Unicode name ("CYRILLIC SMALL LETTER A"), because the
# standard library does not have the Script property. Scripts whose names start with the same word (OLD
# ITALIC, OLD TURKIC) count as one. Look-alikes within one script need the tables of UTS 39.

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
