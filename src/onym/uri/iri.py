"""IRI to URI and back (RFC 3987 3), for what people type and read. The only user of `idna`; import it late.

    >>> to_uri("http://bücher.example/straße?q=ü")
    'http://xn--bcher-kva.example/stra%C3%9Fe?q=%C3%BC'
    >>> to_iri("http://xn--bcher-kva.example/stra%C3%9Fe?q=%C3%BC")
    'http://bücher.example/straße?q=ü'

The host is mapped in the same way for every scheme: triplets are decoded, then IDNA 2008 applies with the
UTS-46 mapping (non-transitional, STD3). The result is ASCII, so a guard that reads the URI judges the name
or address that will be looked up: `169。254。169。254` becomes `169.254.169.254`. A host of plain ASCII
labels is lower-cased and otherwise unchanged, so that a URI stays a URI, underscores included.

The text after the host is not normalised (RFC 3987 3.1, step 1c).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import idna

from onym.errors import URISyntaxError
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


def is_a_label(label: str) -> bool:
    """Whether `label` is a valid A-label: IDNA 2008 decodes it, and encodes the result to `label` again."""
    try:
        return idna.alabel(idna.ulabel(label)) == label.encode("ascii")
    except UnicodeError:
        return False


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
