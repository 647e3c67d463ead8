"""The components of a URI (RFC 3986 2 and 3): percent-encoding, IP literals and syntax errors.

Only this module encodes or decodes percent triplets. A `Quoter` takes raw text, so a `%` in the text is
data and becomes `%25`; no quoter accepts text that is already encoded. The IP functions do not use
`ipaddress`: it is slow to import, and the forms that it accepts (zone identifiers, leading zeros) differ
between Python versions. An error message names at most the kind of character, never the text.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn, Self

from onym.errors import URISyntaxError

#: RFC 3986 2.3
UNRESERVED: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
#: RFC 3986 2.2
SUB_DELIMS: Final = "!$&'()*+,;="

_TRIPLET = re.compile("%([0-9A-Fa-f]{2})")
_BAD_TRIPLET = re.compile("%(?![0-9A-Fa-f]{2})")


def make_syntax_error(
    code: str, message: str, component: str, offset: int | None, clause: str, hint: str | None = None
) -> URISyntaxError:
    """A URISyntaxError. It takes its arguments by position, because most functions here can raise it."""
    return URISyntaxError(message, code=code, component=component, offset=offset, clause=clause, hint=hint)


class _Triplets(dict[int, str]):
    """The table for `str.translate`: a byte, read as a latin-1 character, to its text; filled as used."""

    __slots__ = ("_kept",)

    def __init__(self, kept: str) -> None:
        self._kept = kept

    def __missing__(self, byte: int) -> str:
        written = self[byte] = chr(byte) if chr(byte) in self._kept else f"%{byte:02X}"
        return written


class Quoter:
    """Encodes raw text for one component.

    `name` is the component, `safe` the characters kept beside unreserved. `quote()` writes every other
    character as its UTF-8 bytes in upper-case triplets.
    """

    __slots__ = ("_kept", "_table", "name", "safe")

    def __init__(self, name: str, safe: str = "") -> None:
        self.name = name
        self.safe = safe
        self._kept = UNRESERVED + safe
        self._table = _Triplets(self._kept)

    def __repr__(self) -> str:
        return f"<Quoter {self.name}>"

    def quote(self, text: str) -> str:
        """Encode `text` for the component.

        Raises URISyntaxError (`uri.bad-utf8`) if `text` contains a lone surrogate: it has no UTF-8 form.
        """
        if not text.strip(self._kept):  # it has only characters that are kept
            return text
        try:
            encoded = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise _make_surrogate_error(self.name, error.start) from None
        return encoded.decode("latin-1").translate(self._table)


def _make_surrogate_error(component: str, offset: int) -> URISyntaxError:
    message = f"the {component} contains a lone surrogate, which has no UTF-8 form"
    return make_syntax_error("uri.bad-utf8", message, component, offset, "RFC 3986 2.5")


def _make_triplet_error(component: str, offset: int) -> URISyntaxError:
    message = f"a % in the {component} is not followed by two hexadecimal digits"
    hint = "write a literal % as %25"
    code = "uri.bad-percent-encoding"
    return make_syntax_error(code, message, component, offset, "RFC 3986 2.1", hint)


#: one path segment, only unreserved characters kept (draft-levy-llm-uri-scheme-00 3.2)
SEGMENT: Final = Quoter("path")
#: one path segment, all of `pchar` kept (RFC 3986 3.3)
PCHAR_SEGMENT: Final = Quoter("path", SUB_DELIMS + ":@")
#: a whole path: `/` separates (RFC 3986 3.3)
PATH: Final = Quoter("path", SUB_DELIMS + ":@/")
#: a whole query (RFC 3986 3.4)
QUERY: Final = Quoter("query", SUB_DELIMS + ":@/?")
#: the name of one `name=value` pair; `&`, `=` and `+` are data and get encoded
QUERY_NAME: Final = Quoter("query")
#: the value of one `name=value` pair; `&`, `=` and `+` are data and get encoded
QUERY_VALUE: Final = Quoter("query")
#: one half of the userinfo (label or key); `:` is data and gets encoded
USERINFO: Final = Quoter("userinfo")
#: a whole userinfo, `:` kept (RFC 3986 3.2.1)
USERINFO_PAIR: Final = Quoter("userinfo", SUB_DELIMS + ":")
#: a fragment (RFC 3986 3.5)
FRAGMENT: Final = Quoter("fragment", SUB_DELIMS + ":@/?")
#: a registered name (RFC 3986 3.2.2)
REG_NAME: Final = Quoter("host", SUB_DELIMS)


def find_bad_triplet(text: str) -> int:
    """Index of the first `%` that two hexadecimal digits do not follow, or -1."""
    found = _BAD_TRIPLET.search(text)
    return -1 if found is None else found.start()


def decode_component(text: str, *, component: str, offset: int = 0) -> str:
    """Decode the triplets of `text` once, as strict UTF-8.

    `offset` is the position of `text` in the URI: errors count from there. Raises URISyntaxError,
    `uri.bad-percent-encoding` or `uri.bad-utf8`.
    """
    if "%" not in text:
        return text
    decoded = decode_component_bytes(text, component=component, offset=offset)
    try:
        return decoded.decode("utf-8")
    except UnicodeDecodeError as error:
        offset += _find_byte_position(text, error.start)
        message = f"percent-encoded bytes in the {component} are not UTF-8"
        raise make_syntax_error("uri.bad-utf8", message, component, offset, "RFC 3986 2.5") from None


def decode_component_bytes(text: str, *, component: str = "text", offset: int = 0) -> bytes:
    """The bytes that `text` encodes: triplets decoded once, other characters as UTF-8.

    Raises URISyntaxError as `decode_component` does.
    """
    bad = find_bad_triplet(text)
    if bad >= 0:
        raise _make_triplet_error(component, offset + bad)
    try:
        first, *rest = text.encode("utf-8").split(b"%")
    except UnicodeEncodeError as error:
        raise _make_surrogate_error(component, offset + error.start) from None
    return first + b"".join([_BYTES[piece[:2]] + piece[2:] for piece in rest])


def normalize_triplets(text: str) -> str:
    """`text` with upper-case triplets and unreserved characters decoded (RFC 3986 6.2.2.1, 6.2.2.2).

    A `%` that starts no triplet stays as it is.
    """
    return _TRIPLET.sub(_normalize_triplet, text) if "%" in text else text


def uppercase_triplets(text: str) -> str:
    """`text` with upper-case triplets, nothing decoded (RFC 3986 6.2.2.1)."""
    return _TRIPLET.sub(lambda triplet: triplet[0].upper(), text) if "%" in text else text


HEX_DIGITS: Final = "0123456789abcdefABCDEF"
_BYTES: Final = {(a + b).encode(): bytes([int(a + b, 16)]) for a in HEX_DIGITS for b in HEX_DIGITS}


def _normalize_triplet(triplet: re.Match[str]) -> str:
    character = chr(int(triplet[1], 16))
    return character if character in UNRESERVED else triplet[0].upper()


def _find_byte_position(text: str, byte: int) -> int:
    """Index in `text` of the character or triplet that encodes byte number `byte`."""
    position = 0
    while byte > 0:
        encoded = text[position] == "%"
        byte -= 1 if encoded else len(text[position].encode("utf-8"))
        position += 3 if encoded else 1
    return position


_FUTURE: Final = UNRESERVED + SUB_DELIMS + ":"
#: seven groups of four and a dotted quad: the longest address
_LONGEST: Final = 45

# `not text.strip(characters)` tests whether a text has only these characters: as fast as an expression, and
# needs no compilation at import


def is_ipv4(text: str) -> bool:
    """Whether `text` is an `IPv4address`: four decimal numbers up to 255, without leading zeros."""
    numbers = text.split(".")
    return len(numbers) == 4 and all(
        number.isascii()
        and number.isdecimal()
        and (number[0] != "0" or number == "0")
        and len(number) <= 3
        and int(number) <= 255
        for number in numbers
    )


def is_ipvfuture(text: str) -> bool:
    """Whether `text`, without brackets, is an `IPvFuture`."""
    version, dot, address = text[1:].partition(".")
    return (
        text[:1] in ("v", "V")
        and version != ""
        and not version.strip(HEX_DIGITS)
        and dot != ""
        and address != ""
        and not address.strip(_FUTURE)
    )


def classify_ip_literal(text: str) -> str | None:
    """`"IPv6address"`, `"IPvFuture"` or None, for the text between the brackets of a host."""
    if text[:1] in ("v", "V"):
        return "IPvFuture" if is_ipvfuture(text) else None
    return None if parse_ipv6(text) is None else "IPv6address"


def parse_ipv6(text: str) -> int | None:
    """The 128-bit value of an `IPv6address`, or None if `text` is not one."""
    if len(text) > _LONGEST:
        return None
    head, gap, tail = text.partition("::")
    before = head.split(":") if head else []
    after = tail.split(":") if tail else []
    last = after if gap else before
    if last and "." in last[-1]:
        if not is_ipv4(last[-1]):
            return None
        a, b, c, d = map(int, last.pop().split("."))
        last += [f"{a << 8 | b:x}", f"{c << 8 | d:x}"]
    missing = 8 - len(before) - len(after)
    if (missing < 1) if gap else (missing != 0):
        return None
    value = 0
    for group in (*before, *["0"] * missing, *after):
        if not 1 <= len(group) <= 4 or group.strip(HEX_DIGITS):
            return None
        value = value << 16 | int(group, 16)
    return value


def format_ipv6(value: int) -> str:
    """The address as RFC 5952 4 writes it: lower case, the longest run of zeros as `::`.

    All of it in hexadecimal: the dotted quad of RFC 5952 5 is optional, and one form for every
    address needs no list of prefixes.
    """
    groups = [value >> shift & 0xFFFF for shift in range(112, -1, -16)]
    start, length = _find_longest_zero_run(groups)
    texts = [f"{group:x}" for group in groups]
    if length < 2:
        return ":".join(texts)
    return ":".join(texts[:start]) + "::" + ":".join(texts[start + length :])


def _find_longest_zero_run(groups: list[int]) -> tuple[int, int]:
    """Where the first longest run of zeros starts, and its length."""
    best = (0, 0)
    start = None
    for index, group in enumerate([*groups, 1]):
        if group == 0:
            start = index if start is None else start
        elif start is not None:
            if index - start > best[1]:
                best = (start, index - start)
            start = None
    return best


# RFC 3986 Appendix B, with an empty scheme allowed so that it can be refused
_PIECES = re.compile(
    r"(?:(?P<scheme>[^:/?#]*):)?(?://(?P<authority>[^/?#]*))?(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?",
    re.DOTALL,
)
#: the message for a scheme of another form
SCHEME_RULE: Final = "a scheme is a letter, then letters, digits, +, - and ."
_SCHEME_PREFIX = re.compile("[A-Za-z][A-Za-z0-9+.-]*").match
_NOT_DIGIT = re.compile("[^0-9]")


def _compile_outside(characters: str) -> re.Pattern[str]:
    # a % is judged as a triplet
    return re.compile(f"[^%{re.escape(characters)}]")


_REG: Final = UNRESERVED + SUB_DELIMS


class _ComponentRule(NamedTuple):
    """The characters that a component may not contain, and the clause that forbids them."""

    name: str
    outside: re.Pattern[str]
    clause: str


_USERINFO = _ComponentRule("userinfo", _compile_outside(_REG + ":"), "RFC 3986 3.2.1")
_REG_NAME = _ComponentRule("host", _compile_outside(_REG), "RFC 3986 3.2.2")
_PATH = _ComponentRule("path", _compile_outside(_REG + ":@/"), "RFC 3986 3.3")
_QUERY = _ComponentRule("query", _compile_outside(_REG + ":@/?"), "RFC 3986 3.4")
_FRAGMENT = _ComponentRule("fragment", _compile_outside(_REG + ":@/?"), "RFC 3986 3.5")

_KINDS: Final = {
    " ": ("a space", "write it as %20"),
    "\\": ("a backslash", "write it as %5C, or / where it separates"),
    "[": ("a square bracket", "write it as %5B"),
    "]": ("a square bracket", "write it as %5D"),
    "#": ("a second #", "write it as %23"),
    "@": ("a second @", "write it as %40"),
}


def explain_syntax_error(text: str, rule: str) -> URISyntaxError:
    """The error for `text`, which is known not to match `rule`."""
    pieces = _PIECES.match(text)
    assert pieces is not None  # noqa: S101 - it matches any text
    scheme = pieces["scheme"]
    if scheme is not None and rule == "relative-ref":
        message = "a colon in the first segment of a relative reference would end a scheme"
        code, hint = "uri.colon-in-first-segment", "put ./ before the path"
        return make_syntax_error(code, message, "path", len(scheme), "RFC 3986 4.2", hint)
    fault = _find_scheme_fault(scheme) or _find_authority_fault(pieces)
    for component in (_PATH, _QUERY, _FRAGMENT):
        fault = fault or _find_piece_fault(pieces, component)
    if fault is not None:
        return fault
    if scheme is None:
        hint = "a URI starts with a scheme and a colon, such as https:"
        return make_syntax_error("uri.no-scheme", "the URI has no scheme", "scheme", 0, "RFC 3986 3", hint)
    at = pieces.start("fragment") - 1
    message = "an absolute URI has no fragment"
    return make_syntax_error("uri.fragment-not-allowed", message, "fragment", at, "RFC 3986 4.3")


def _find_scheme_fault(scheme: str | None) -> URISyntaxError | None:
    if scheme is None:
        return None
    good = _SCHEME_PREFIX(scheme)
    end = 0 if good is None else good.end()
    if good is not None and end == len(scheme):
        return None
    hint = "if it is a relative path, put ./ before it"
    return make_syntax_error("uri.bad-scheme", SCHEME_RULE, "scheme", end, "RFC 3986 3.1", hint)


def _find_authority_fault(pieces: re.Match[str]) -> URISyntaxError | None:
    authority: str | None = pieces["authority"]
    if authority is None:
        return None
    at = pieces.start("authority")
    fault = None
    userinfo, sign, host = authority.partition("@")
    if sign:
        fault = _find_fault(_USERINFO, userinfo, at)
        at += len(userinfo) + 1
    else:
        host = authority
    if host[:1] == "[":
        host, bracket, port = host.partition("]")
        fault = fault or _find_literal_fault(host[1:], at, closed=bool(bracket))
        host += bracket
        if fault is None and port[:1] not in ("", ":"):
            return _make_literal_error("only a port may follow an IP literal", at + len(host))
        port = port[1:]
    else:
        host, _, port = host.partition(":")
        fault = fault or _find_fault(_REG_NAME, host, at)
    lost_sign = not sign and "@" in pieces.string[pieces.end("authority") :]
    return fault or _find_port_fault(port, at + len(host) + 1, lost_sign=lost_sign)


def _find_literal_fault(literal: str, bracket: int, *, closed: bool) -> URISyntaxError | None:
    if not closed:
        return _make_literal_error("the bracket of an IP literal is not closed", bracket)
    if classify_ip_literal(literal) is not None:
        return None
    if literal[:1] in ("v", "V"):
        return _make_literal_error("not an IPvFuture", bracket + 1, code="uri.bad-ipvfuture")
    zone = "a zone identifier is not part of a URI (RFC 9844)" if "%" in literal else None
    return _make_literal_error("not an IPv6 address", bracket + 1, code="uri.bad-ipv6", hint=zone)


def _make_literal_error(
    message: str, offset: int, *, code: str = "uri.bad-ip-literal", hint: str | None = None
) -> URISyntaxError:
    return make_syntax_error(code, message, "host", offset, _REG_NAME.clause, hint)


def _find_port_fault(port: str, at: int, *, lost_sign: bool) -> URISyntaxError | None:
    stray = _NOT_DIGIT.search(port)
    if stray is None:
        return None
    hint = None
    if lost_sign:
        hint = "if it is a password, its /, ? and # are written as %2F, %3F and %23"
    elif ":" in port:
        hint = "write an IPv6 address in square brackets"
    offset = at + stray.start()
    return make_syntax_error(
        "uri.bad-port", "a port is decimal digits", "port", offset, "RFC 3986 3.2.3", hint
    )


def _find_piece_fault(pieces: re.Match[str], component: _ComponentRule) -> URISyntaxError | None:
    text: str | None = pieces[component.name]
    return None if text is None else _find_fault(component, text, pieces.start(component.name))


def _find_fault(component: _ComponentRule, text: str, at: int) -> URISyntaxError | None:
    """The error for the first character or triplet of `text`, at `at`, that the component forbids."""
    stray = component.outside.search(text)
    triplet = find_bad_triplet(text)
    if triplet >= 0 and (stray is None or triplet < stray.start()):
        return _make_triplet_error(component.name, at + triplet)
    if stray is None:
        return None
    kind, hint = _describe_character(stray[0])
    message, offset = f"{kind} is not allowed in the {component.name}", at + stray.start()
    return make_syntax_error("uri.bad-character", message, component.name, offset, component.clause, hint)


def _describe_character(character: str) -> tuple[str, str]:
    if character in _KINDS:
        return _KINDS[character]
    if not character.isascii():
        return "a character outside ASCII", "convert an IRI with onym.uri.iri.to_uri"
    if character.isprintable():
        return "this character", "percent-encode it"
    return "a control character", "remove it, or percent-encode it"


class Frozen:
    """Base of values whose attributes cannot be set or deleted. A copy is the value itself."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} objects cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} objects cannot be changed")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def _set_slots(self, **values: object) -> None:
        """Fill the slots, in the constructor."""
        for name, value in values.items():
            object.__setattr__(self, name, value)
