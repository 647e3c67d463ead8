"""Why a text is not what a rule of RFC 3986 Appendix A wants: the first fault, from left to right.

The slow path of `_rfc3986.split`, imported only when there is something to explain. A message names the
kind of character at most, never the text.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from onym.errors import URISyntaxError
from onym.uri._ip import literal_type
from onym.uri._percent import SUB_DELIMS, UNRESERVED, find_bad_triplet

__all__ = ["explain"]

# RFC 3986 Appendix B, with an empty scheme allowed so that it can be refused
_PIECES = re.compile(
    r"(?:(?P<scheme>[^:/?#]*):)?(?://(?P<authority>[^/?#]*))?(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?",
    re.DOTALL,
)
_SCHEME_PREFIX = re.compile("[A-Za-z][A-Za-z0-9+.-]*").match
_NOT_DIGIT = re.compile("[^0-9]")


def _outside(characters: str) -> re.Pattern[str]:
    # a % is judged as a triplet
    return re.compile(f"[^%{re.escape(characters)}]")


_REG: Final = UNRESERVED + SUB_DELIMS


class _Component(NamedTuple):
    """What a component may hold: the first character outside, and the clause that says so."""

    name: str
    outside: re.Pattern[str]
    clause: str


_USERINFO = _Component("userinfo", _outside(_REG + ":"), "RFC 3986 3.2.1")
_REG_NAME = _Component("host", _outside(_REG), "RFC 3986 3.2.2")
_PATH = _Component("path", _outside(_REG + ":@/"), "RFC 3986 3.3")
_QUERY = _Component("query", _outside(_REG + ":@/?"), "RFC 3986 3.4")
_FRAGMENT = _Component("fragment", _outside(_REG + ":@/?"), "RFC 3986 3.5")

_KINDS: Final = {
    " ": ("a space", "write it as %20"),
    "\\": ("a backslash", "write it as %5C, or / where it separates"),
    "[": ("a square bracket", "write it as %5B"),
    "]": ("a square bracket", "write it as %5D"),
    "#": ("a second #", "write it as %23"),
    "@": ("a second @", "write it as %40"),
}


def explain(text: str, rule: str) -> URISyntaxError:
    """The error for `text`, which is known not to match `rule`."""
    pieces = _PIECES.match(text)
    assert pieces is not None  # noqa: S101  it matches any text
    scheme = pieces["scheme"]
    if scheme is not None and rule == "relative-ref":
        return _colon_in_first_segment(len(scheme))
    fault = _scheme_fault(scheme) or _authority_fault(pieces)
    for component in (_PATH, _QUERY, _FRAGMENT):
        fault = fault or _piece_fault(pieces, component)
    if fault is not None:
        return fault
    if scheme is None:
        return URISyntaxError(
            "there is no scheme",
            code="uri.no-scheme",
            component="scheme",
            offset=0,
            clause="RFC 3986 3",
            hint="a URI starts with a scheme and a colon, such as https:",
        )
    return URISyntaxError(
        "an absolute URI has no fragment",
        code="uri.fragment-not-allowed",
        component="fragment",
        offset=pieces.start("fragment") - 1,
        clause="RFC 3986 4.3",
    )


def _colon_in_first_segment(offset: int) -> URISyntaxError:
    return URISyntaxError(
        "a colon in the first segment of a relative reference would end a scheme",
        code="uri.colon-in-first-segment",
        component="path",
        offset=offset,
        clause="RFC 3986 4.2",
        hint="put ./ before the path",
    )


def _scheme_fault(scheme: str | None) -> URISyntaxError | None:
    if scheme is None:
        return None
    good = _SCHEME_PREFIX(scheme)
    end = 0 if good is None else good.end()
    if good is not None and end == len(scheme):
        return None
    return URISyntaxError(
        "a scheme is a letter, then letters, digits, +, - and .",
        code="uri.bad-scheme",
        component="scheme",
        offset=end,
        clause="RFC 3986 3.1",
        hint="if it is a relative path, put ./ before it",
    )


def _authority_fault(pieces: re.Match[str]) -> URISyntaxError | None:
    authority: str | None = pieces["authority"]
    if authority is None:
        return None
    at = pieces.start("authority")
    fault = None
    userinfo, sign, host = authority.partition("@")
    if sign:
        fault = _fault(_USERINFO, userinfo, at)
        at += len(userinfo) + 1
    else:
        host = authority
    if host[:1] == "[":
        host, bracket, port = host.partition("]")
        fault = fault or _literal_fault(host[1:], at, closed=bool(bracket))
        host += bracket
        if fault is None and port[:1] not in ("", ":"):
            return _bad_literal("only a port may follow an IP literal", at + len(host))
        port = port[1:]
    else:
        host, _, port = host.partition(":")
        fault = fault or _fault(_REG_NAME, host, at)
    lost_sign = not sign and "@" in pieces.string[pieces.end("authority") :]
    return fault or _port_fault(port, at + len(host) + 1, lost_sign=lost_sign)


def _literal_fault(literal: str, bracket: int, *, closed: bool) -> URISyntaxError | None:
    if not closed:
        return _bad_literal("the bracket of an IP literal is not closed", bracket)
    if literal_type(literal) is not None:
        return None
    if literal[:1] in ("v", "V"):
        return _bad_literal("not an IPvFuture", bracket + 1, code="uri.bad-ipvfuture")
    zone = "a zone identifier is not part of a URI (RFC 9844)" if "%" in literal else None
    return _bad_literal("not an IPv6 address", bracket + 1, code="uri.bad-ipv6", hint=zone)


def _bad_literal(
    message: str, offset: int, *, code: str = "uri.bad-ip-literal", hint: str | None = None
) -> URISyntaxError:
    return URISyntaxError(
        message, code=code, component="host", offset=offset, clause=_REG_NAME.clause, hint=hint
    )


def _port_fault(port: str, at: int, *, lost_sign: bool) -> URISyntaxError | None:
    stray = _NOT_DIGIT.search(port)
    if stray is None:
        return None
    hint = None
    if lost_sign:
        hint = "if it is a password, its /, ? and # are written as %2F, %3F and %23"
    elif ":" in port:
        hint = "an IPv6 address stands in square brackets"
    return URISyntaxError(
        "a port is decimal digits",
        code="uri.bad-port",
        component="port",
        offset=at + stray.start(),
        clause="RFC 3986 3.2.3",
        hint=hint,
    )


def _piece_fault(pieces: re.Match[str], component: _Component) -> URISyntaxError | None:
    text: str | None = pieces[component.name]
    return None if text is None else _fault(component, text, pieces.start(component.name))


def _fault(component: _Component, text: str, at: int) -> URISyntaxError | None:
    """The first character or triplet of `text`, which starts at `at`, that the component can't hold."""
    stray = component.outside.search(text)
    triplet = find_bad_triplet(text)
    if triplet >= 0 and (stray is None or triplet < stray.start()):
        return URISyntaxError(
            f"a % in the {component.name} is not followed by two hexadecimal digits",
            code="uri.bad-percent-encoding",
            component=component.name,
            offset=at + triplet,
            clause="RFC 3986 2.1",
            hint="write a literal % as %25",
        )
    if stray is None:
        return None
    kind, hint = _kind(stray[0])
    return URISyntaxError(
        f"{kind} is not allowed in the {component.name}",
        code="uri.bad-character",
        component=component.name,
        offset=at + stray.start(),
        clause=component.clause,
        hint=hint,
    )


def _kind(character: str) -> tuple[str, str]:
    if character in _KINDS:
        return _KINDS[character]
    if not character.isascii():
        return "a character outside ASCII", "an IRI becomes a URI by onym.uri.iri.to_uri"
    if character.isprintable():
        return "this character", "percent-encode it"
    return "a control character", "take it out, or percent-encode it"
