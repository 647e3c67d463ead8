"""Hypothesis strategies for URIs. Needs hypothesis, which Onym does not install.

    from hypothesis import given
    from onym.testing import strategies as ost

    @given(ost.uri_references())
    def test_my_code_takes_any_reference(text: str) -> None: ...

Each strategy gives text, so that what hypothesis prints can be pasted elsewhere; only `llm_uris` gives
values, whose spellings come from `llm_texts`. The texts are made from the grammar, odd corners on purpose:
empty components, triplets of either case, dot segments, capitals, addresses that are none.
"""

from __future__ import annotations

import string
from typing import Final

from hypothesis import strategies as st

from onym.testing.llm_strategies import llm_texts, llm_uris
from onym.uri._percent import SUB_DELIMS, UNRESERVED

__all__ = [
    "absolute_uris",
    "ai_uris",
    "hosts",
    "ipv4_addresses",
    "ipv6_addresses",
    "ipvfuture_addresses",
    "iri_references",
    "llm_texts",
    "llm_uris",
    "relative_references",
    "triplets",
    "uri_references",
    "uris",
]

_HOST: Final = UNRESERVED + SUB_DELIMS
_PCHAR: Final = _HOST + ":@"
#: beyond ASCII: two to four octets, capitals, marks, right-to-left, and what IDNA drops or turns to dots
_WIDE: Final = "éßÜ\u0301中文\u05d0\u0627\u200c\u00ad\u3002\uff0e\u2460\uff41\U0001f600\U00020000"


def _unless_absent(prefix: str, texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(st.just(""), texts.map(lambda text: prefix + text))


def triplets() -> st.SearchStrategy[str]:
    """One percent triplet: any octet, hexadecimal digits of either case."""
    return st.builds(
        lambda octet, lower: f"%{octet:02x}" if lower else f"%{octet:02X}", st.integers(0, 255), st.booleans()
    )


def _texts(characters: str, *, min_size: int = 0, max_size: int = 10) -> st.SearchStrategy[str]:
    one = st.one_of(st.sampled_from(characters), triplets())
    return st.lists(one, min_size=min_size, max_size=max_size).map("".join)


def ipv4_addresses() -> st.SearchStrategy[str]:
    """Dotted quads without leading zeros."""
    return st.lists(st.integers(0, 255), min_size=4, max_size=4).map(
        lambda octets: ".".join(map(str, octets))
    )


def ipv6_addresses() -> st.SearchStrategy[str]:
    """IPv6 addresses without brackets: all spellings of RFC 3986, not just the shortest."""
    groups = st.one_of(st.just("0"), st.text("0123456789abcdefABCDEF", min_size=1, max_size=4))
    tails = st.one_of(st.tuples(groups, groups).map(":".join), ipv4_addresses())

    def gapped(before: list[str], after: list[str], tail: str | None) -> str:
        return ":".join(before) + "::" + ":".join([*after, tail] if tail else after)

    whole = st.builds(
        lambda first, tail: ":".join([*first, tail]), st.lists(groups, min_size=6, max_size=6), tails
    )
    short = st.integers(0, 5).flatmap(
        lambda count: st.builds(
            gapped,
            st.lists(groups, max_size=count),
            st.lists(groups, max_size=5 - count),
            st.one_of(st.none(), tails),
        )
    )
    return st.one_of(whole, short)


def ipvfuture_addresses() -> st.SearchStrategy[str]:
    """IPvFuture literals without brackets."""
    return st.builds(
        lambda v, version, address: f"{v}{version}.{address}",
        st.sampled_from("vV"),
        st.text("0123456789abcdefABCDEF", min_size=1, max_size=3),
        st.text(_HOST + ":", min_size=1, max_size=10),
    )


def hosts() -> st.SearchStrategy[str]:
    """Hosts as they stand in an authority, IP literals with brackets; the empty one too."""
    names = st.lists(st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=8), min_size=1)
    return st.one_of(
        names.map(".".join),
        _texts(_HOST),
        ipv4_addresses(),
        st.sampled_from(["", "localhost", "192.168.01.1", "256.1.1.1", "127.1", "0x7f.1", "1.2.3.%34"]),
        st.one_of(ipv6_addresses(), ipvfuture_addresses()).map(lambda literal: f"[{literal}]"),
    )


def _authorities() -> st.SearchStrategy[str]:
    userinfos = st.one_of(st.just(""), _texts(_HOST + ":").map(lambda text: text + "@"))
    ports = st.one_of(st.integers(0, 70_000).map(str), st.sampled_from(["", "80", "443", "0080", "00"]))
    return st.builds("{}{}{}".format, userinfos, hosts(), _unless_absent(":", ports))


def _schemes() -> st.SearchStrategy[str]:
    free = st.builds(
        "{}{}".format,
        st.sampled_from(string.ascii_letters),
        st.text(string.ascii_letters + string.digits + "+.-", max_size=6),
    )
    return st.one_of(st.sampled_from(["http", "HTTPS", "ftp", "ws", "ai", "llm", "urn", "mailto"]), free)


def _segments(*, min_size: int = 0, characters: str = _PCHAR) -> st.SearchStrategy[str]:
    dots = st.sampled_from([".", "..", "%2e", ".%2E", "...", ".a"])
    return st.one_of(_texts(characters, min_size=min_size), dots)


def _rooted(*, after_authority: bool) -> st.SearchStrategy[str]:
    rest = st.lists(st.one_of(st.just(""), _segments()), max_size=6)
    many = rest.map(lambda segments: "".join("/" + segment for segment in segments))
    if after_authority:
        return many
    first = _segments(min_size=1)
    return st.one_of(st.just("/"), st.builds("/{}{}".format, first, many))


def _rootless(characters: str) -> st.SearchStrategy[str]:
    return st.builds(
        "{}{}".format, _segments(min_size=1, characters=characters), _rooted(after_authority=True)
    )


def _hierarchical(first_segment: str) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("//{}{}".format, _authorities(), _rooted(after_authority=True)),
        _rooted(after_authority=False),
        _rootless(first_segment),
        st.just(""),
    )


def _queries() -> st.SearchStrategy[str]:
    return _unless_absent("?", _texts(_PCHAR + "/?", max_size=20))


def _fragments() -> st.SearchStrategy[str]:
    return _unless_absent("#", _texts(_PCHAR + "/?"))


def absolute_uris() -> st.SearchStrategy[str]:
    """The rule absolute-URI of RFC 3986: a scheme, no fragment."""
    return st.builds("{}:{}{}".format, _schemes(), _hierarchical(_PCHAR), _queries())


def uris() -> st.SearchStrategy[str]:
    """The rule URI: a scheme, perhaps a fragment."""
    return st.builds("{}{}".format, absolute_uris(), _fragments())


def relative_references() -> st.SearchStrategy[str]:
    """The rule relative-ref: no scheme, no colon in the first segment."""
    return st.builds("{}{}{}".format, _hierarchical(_PCHAR.replace(":", "")), _queries(), _fragments())


def uri_references() -> st.SearchStrategy[str]:
    """The rule URI-reference: either of the two."""
    return st.one_of(uris(), relative_references())


def ai_uris() -> st.SearchStrategy[str]:
    """URIs of the scheme ai, as wide as its draft's grammar: not each has a canonical form."""
    names = st.lists(st.text("abcXYZ019-", min_size=1, max_size=5), min_size=1, max_size=3).map(".".join)
    plain = st.lists(st.text("abcXYZ019-._~%", min_size=1, max_size=6).map(_whole), max_size=4)
    paths = plain.map(lambda segments: "".join("/" + segment for segment in segments))
    tame = st.builds("ai://{}{}{}".format, names, paths, _queries())
    wild = st.builds(
        "{}:{}{}{}".format, st.sampled_from(["ai", "AI"]), _hierarchical(_PCHAR), _queries(), _fragments()
    )
    return st.one_of(tame, wild)


def _whole(text: str) -> str:
    return text.replace("%", "%2D")


def iri_references() -> st.SearchStrategy[str]:
    """References with characters beyond ASCII in host, path, query or fragment, not all of them allowed."""
    wide = st.text(_WIDE + string.ascii_letters + string.digits, max_size=8)
    return st.builds(
        "{}{}{}{}{}".format,
        st.sampled_from(["", "http:", "llm:"]),
        _unless_absent("//", wide),
        _unless_absent("/", wide),
        _unless_absent("?", wide),
        _unless_absent("#", wide),
    )
