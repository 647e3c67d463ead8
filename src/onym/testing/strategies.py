"""Hypothesis strategies for URIs. This module needs `hypothesis`, which Onym does not install.

    from hypothesis import given
    from onym.testing import strategies as ost

    @given(ost.uri_references())
    def test_my_code_takes_any_reference(text: str) -> None: ...

    @given(ost.llm_uris())
    def test_my_router_keeps_the_model(uri: LLMURI) -> None: ...

Most strategies return text, so that you can paste what hypothesis prints. `llm_uris` returns values, and
`llm_texts` their spellings. The texts are made from the grammar and include rare forms on purpose: empty
components, triplets of either case, dot segments, capitals and invalid addresses. No key is real.
"""

from __future__ import annotations

import string
from typing import Any, Final

from hypothesis import strategies as st

from onym.uri.components import SUB_DELIMS, UNRESERVED, decode_component
from onym.uri.llm import LLMURI
from onym.uri.parameters import PROVIDER_NAMES, VALUE_PARSERS, is_secret_parameter, split_dotted_name

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

_CONTROLS = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0))))
_RAW_IN_PATH = UNRESERVED + "!$&'()*+,;=:@"
_RAW_IN_VALUE = UNRESERVED + "!$'()*,;=:@/?"
_KNOWN_PAIRS = (
    "temp=0.70 temp=+1 t%65mp=0 max_tokens=007 top_p=1.0 stream=TRUE cache=false stop=a,b stop=a%2Cb seed=-1 "
    "system=a+b format=JSON auth=env:KEY retries=0 timeout=1"
)
_OTHER_PAIRS = "x=1 z.y=a web=%7b%22a%22:1%7d flag =v a..b=1 base_url=x key=s temprature=1 maxTokens=5 n=007"
_PIECES = (
    'llm:// llm: // / ? # & = . .. @ : % %2 %2F %00 %FF %ff%fe [ ] [::1] { } " temp= stop= a.b= a= api_key= '
    "auth= 0 1e5 - + %7B %5B %22 %5Cud800 é gpt-5 host true ,"
)


def _plain_texts(*, min_size: int = 0, max_size: int = 20, without: str = "") -> st.SearchStrategy[str]:
    characters = st.characters(codec="utf-8", exclude_characters=without)
    common = st.text(UNRESERVED, min_size=min_size, max_size=max_size)
    return common | st.text(characters, min_size=min_size, max_size=max_size)


def llm_labels() -> st.SearchStrategy[str]:
    """App-labels: any text without control characters."""
    return _plain_texts(min_size=1, without=_CONTROLS)


def llm_keys() -> st.SearchStrategy[str]:
    """API keys: any text without blanks and control characters. None has a provider's format."""
    return _plain_texts(min_size=1, without=_CONTROLS + " ").filter(lambda key: key != "***")


def llm_hosts() -> st.SearchStrategy[str]:
    """Host names, aliases of one word, IPv4 and IPv6 addresses, as `LLMURI.host` gives them."""
    label = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
    name = st.lists(label, min_size=1, max_size=4).map(".".join)
    usual = st.sampled_from(
        ["api.openai.com", "api.anthropic.com", "localhost", "openai", "embedded", "ollama"]
    )
    address = st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str)
    return usual | name | address


def llm_models() -> st.SearchStrategy[tuple[str, ...]]:
    """Models as segments; some contain a slash, a colon or another script."""
    usual = st.sampled_from([("gpt-5",), ("anthropic", "claude-sonnet-4.5"), ("llama3:8b",), ("org/model",)])
    segment = _plain_texts(min_size=1, without=_CONTROLS + "/\\").filter(lambda text: text not in (".", ".."))
    return usual | st.lists(segment, min_size=1, max_size=4).map(tuple)


def well_known_params() -> st.SearchStrategy[dict[str, Any]]:
    """Some of the parameters of draft section 6, each within its range."""
    return st.fixed_dictionaries(
        {},
        optional={
            "temp": st.floats(0, 2).filter(_is_short).map(_drop_zero_sign),
            "max_tokens": st.integers(1, 2**63 - 1),
            "top_p": st.floats(0, 1).filter(_is_short).map(_drop_zero_sign),
            "top_k": st.integers(0, 2**63 - 1),
            "stop": st.lists(_plain_texts(min_size=1), min_size=1, max_size=4).map(tuple),
            "seed": st.integers(-(2**63), 2**63 - 1),
            "stream": st.booleans(),
            "timeout": st.integers(1, 2**31 - 1),
            "retries": st.integers(0, 100),
            "cache": st.booleans(),
            "format": st.sampled_from(["text", "json", "json_schema"]),
            "system": _plain_texts(max_size=60),
        },
    )


def _is_short(number: float) -> bool:
    # a URI cannot contain a number of more than 32 characters in decimal notation
    return number == 0 or abs(number) > 1e-12


def _drop_zero_sign(number: float) -> float:
    return number + 0.0


def extra_params() -> st.SearchStrategy[dict[str, Any]]:
    """Parameters that the draft does not define: flags, numbers, text, lists, objects."""
    fractions = st.floats(-1e15, 1e15).filter(_is_short).map(_drop_zero_sign)
    numbers = st.integers(-(10**30), 10**30) | fractions
    like_json = st.sampled_from(["true", "12", "-0.5", '"x"', "{", "[1]", "null"])
    scalars = st.booleans() | numbers | _plain_texts() | like_json
    members = _plain_texts(max_size=8).filter(lambda name: not is_secret_parameter(name))
    json_values = st.recursive(
        st.none() | scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(members, inner, max_size=3),
        max_leaves=8,
    )
    values = scalars | st.lists(json_values, max_size=3) | st.dictionaries(members, json_values, max_size=3)
    names = _plain_texts(max_size=12, without=_CONTROLS).filter(_is_free)
    return st.dictionaries(names, values, max_size=4).filter(lambda params: not any("." in n for n in params))


def _is_free(name: str) -> bool:
    root = split_dotted_name(name)[0]
    return root not in VALUE_PARSERS and root not in PROVIDER_NAMES and not is_secret_parameter(name)


@st.composite
def llm_uris(draw: st.DrawFn, *, with_keys: bool = True) -> LLMURI:
    """Any llm URI; `with_keys=False` gives URIs that can be shown and pickled."""
    key = draw(st.none() | llm_keys()) if with_keys else None
    label = draw(llm_labels()) if key is not None else draw(st.none() | llm_labels())
    return LLMURI.build(
        draw(llm_hosts()),
        model=draw(llm_models()),
        label=label,
        key=key,
        port=draw(st.none() | st.integers(1, 65535)),
        params={**draw(well_known_params()), **draw(extra_params())},
        fragment=draw(st.none() | _plain_texts()),
    )


@st.composite
def llm_texts(draw: st.DrawFn) -> str:
    """The text of an llm URI in any spelling that `LLMURI.parse` takes, canonical or not."""
    scheme = draw(st.sampled_from(["llm", "LLM", "lLm"]))
    userinfo = draw(st.sampled_from(["", "my-app@", "my-app:k@", ":k@", "a:b:c@", "a!:%6b@", "@", "u:@"]))
    hosts = ["api.openai.com", "API.example", "%68ost", "a%2Fb", "[::1]", "[0:0::1]", "127.0.0.1"]
    host = draw(st.sampled_from(hosts))
    port = draw(st.sampled_from(["", ":", ":443", ":0443", ":11434", ":8080"]))
    segment = _spelled_texts(_RAW_IN_PATH, min_size=1).filter(_is_not_dot_segment)
    segments = draw(st.lists(segment, min_size=1, max_size=3))
    pairs = draw(st.lists(_query_pairs(), max_size=5, unique_by=_parse_pair_name))
    query = draw(st.sampled_from(["", "?"]))
    if pairs:
        query = f"?{'&'.join(pairs)}"
    fragment = draw(st.just("") | _spelled_texts(_RAW_IN_VALUE).map("#{}".format))
    return f"{scheme}://{userinfo}{host}{port}/{'/'.join(segments)}{query}{fragment}"


def _parse_pair_name(pair: str) -> str:
    name = decode_component(pair.partition("=")[0], component="query")
    return PROVIDER_NAMES.get(name, name.partition(".")[0])


def _is_not_dot_segment(raw: str) -> bool:
    return raw.replace("%2e", ".").replace("%2E", ".").strip(".") != ""


@st.composite
def _spelled_texts(draw: st.DrawFn, raw: str, *, min_size: int = 0) -> str:
    """Characters of `raw`, some of them percent-encoded in either case."""
    letters = draw(st.lists(st.sampled_from(raw), min_size=min_size, max_size=12))
    forms = ("{0}", "%{1:02x}", "%{1:02X}")
    return "".join(draw(st.sampled_from(forms)).format(letter, ord(letter)) for letter in letters)


def _query_pairs() -> st.SearchStrategy[str]:
    known = st.sampled_from(_KNOWN_PAIRS.split(" "))
    other = st.sampled_from(_OTHER_PAIRS.split(" "))
    spelled = _spelled_texts(_RAW_IN_VALUE)
    return known | other | spelled.map("u{}".format) | spelled.map("v={}".format)


def near_llm_texts() -> st.SearchStrategy[str]:
    """Texts made of pieces of llm URIs, mostly invalid, some with lone surrogates."""
    pieces = st.sampled_from([*_PIECES.split(" "), "\r\n", "\x00", " ", "\ud800"])
    texts = st.lists(pieces, max_size=25).map("".join)
    return texts | texts.map("llm://host/m?{}".format)


_HOST: Final = UNRESERVED + SUB_DELIMS
_PCHAR: Final = _HOST + ":@"
#: beyond ASCII: two to four bytes, capitals, marks, right-to-left, and characters that IDNA drops or maps to
#: dots
_WIDE: Final = "éßÜ\u0301中文\u05d0\u0627\u200c\u00ad\u3002\uff0e\u2460\uff41\U0001f600\U00020000"


def _optional_parts(prefix: str, texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(st.just(""), texts.map(lambda text: prefix + text))


def triplets() -> st.SearchStrategy[str]:
    """One percent triplet: any byte, hexadecimal digits of either case."""
    formats = st.sampled_from(("%{:02x}", "%{:02X}"))
    return st.builds(str.format, formats, st.integers(0, 255))


def _encoded_texts(characters: str, *, min_size: int = 0, max_size: int = 10) -> st.SearchStrategy[str]:
    one = st.one_of(st.sampled_from(characters), triplets())
    return st.lists(one, min_size=min_size, max_size=max_size).map("".join)


def ipv4_addresses() -> st.SearchStrategy[str]:
    """Dotted quads without leading zeros."""
    numbers = st.integers(0, 255).map(str)
    return st.lists(numbers, min_size=4, max_size=4).map(".".join)


def ipv6_addresses() -> st.SearchStrategy[str]:
    """IPv6 addresses without brackets: all spellings of RFC 3986, not just the shortest."""
    groups = st.one_of(st.just("0"), st.text("0123456789abcdefABCDEF", min_size=1, max_size=4))
    tails = st.one_of(st.tuples(groups, groups).map(":".join), ipv4_addresses())

    def gapped(before: list[str], after: list[str], tail: str | None) -> str:
        return ":".join(before) + "::" + ":".join([*after, tail] if tail else after)

    whole = st.builds("{}:{}".format, st.lists(groups, min_size=6, max_size=6).map(":".join), tails)

    def short_addresses(count: int) -> st.SearchStrategy[str]:
        before, after = st.lists(groups, max_size=count), st.lists(groups, max_size=5 - count)
        return st.builds(gapped, before, after, st.none() | tails)

    short = st.integers(0, 5).flatmap(short_addresses)
    return st.one_of(whole, short)


def ipvfuture_addresses() -> st.SearchStrategy[str]:
    """IPvFuture literals without brackets."""
    return st.builds(
        "{}{}.{}".format,
        st.sampled_from("vV"),
        st.text("0123456789abcdefABCDEF", min_size=1, max_size=3),
        st.text(_HOST + ":", min_size=1, max_size=10),
    )


def hosts() -> st.SearchStrategy[str]:
    """Hosts as in an authority, IP literals with brackets; the empty one too."""
    names = st.lists(st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=8), min_size=1)
    return st.one_of(
        names.map(".".join),
        _encoded_texts(_HOST),
        ipv4_addresses(),
        st.sampled_from(["", "localhost", "192.168.01.1", "256.1.1.1", "127.1", "0x7f.1", "1.2.3.%34"]),
        st.one_of(ipv6_addresses(), ipvfuture_addresses()).map(lambda literal: f"[{literal}]"),
    )


def _authority_texts() -> st.SearchStrategy[str]:
    userinfos = st.one_of(st.just(""), _encoded_texts(_HOST + ":").map(lambda text: text + "@"))
    ports = st.one_of(st.integers(0, 70_000).map(str), st.sampled_from(["", "80", "443", "0080", "00"]))
    return st.builds("{}{}{}".format, userinfos, hosts(), _optional_parts(":", ports))


def _scheme_names() -> st.SearchStrategy[str]:
    tails = st.text(string.ascii_letters + string.digits + "+.-", max_size=6)
    free = st.builds("{}{}".format, st.sampled_from(string.ascii_letters), tails)
    return st.one_of(st.sampled_from(["http", "HTTPS", "ftp", "ws", "ai", "llm", "urn", "mailto"]), free)


def _path_segments(*, min_size: int = 0, characters: str = _PCHAR) -> st.SearchStrategy[str]:
    dots = st.sampled_from([".", "..", "%2e", ".%2E", "...", ".a"])
    return st.one_of(_encoded_texts(characters, min_size=min_size), dots)


def _rooted_paths(*, after_authority: bool) -> st.SearchStrategy[str]:
    many = st.lists((st.just("") | _path_segments()).map("/{}".format), max_size=6).map("".join)
    if after_authority:
        return many
    first = _path_segments(min_size=1)
    return st.one_of(st.just("/"), st.builds("/{}{}".format, first, many))


def _rootless_paths(characters: str) -> st.SearchStrategy[str]:
    return st.builds(
        "{}{}".format, _path_segments(min_size=1, characters=characters), _rooted_paths(after_authority=True)
    )


def _hierarchical_parts(first_segment: str) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("//{}{}".format, _authority_texts(), _rooted_paths(after_authority=True)),
        _rooted_paths(after_authority=False),
        _rootless_paths(first_segment),
        st.just(""),
    )


def _query_parts() -> st.SearchStrategy[str]:
    return _optional_parts("?", _encoded_texts(_PCHAR + "/?", max_size=20))


def _fragment_parts() -> st.SearchStrategy[str]:
    return _optional_parts("#", _encoded_texts(_PCHAR + "/?"))


def absolute_uris() -> st.SearchStrategy[str]:
    """The rule absolute-URI of RFC 3986: a scheme, no fragment."""
    return st.builds("{}:{}{}".format, _scheme_names(), _hierarchical_parts(_PCHAR), _query_parts())


def uris() -> st.SearchStrategy[str]:
    """The rule URI: a scheme, perhaps a fragment."""
    return st.builds("{}{}".format, absolute_uris(), _fragment_parts())


def relative_references() -> st.SearchStrategy[str]:
    """The rule relative-ref: no scheme, no colon in the first segment."""
    return st.builds(
        "{}{}{}".format, _hierarchical_parts(_PCHAR.replace(":", "")), _query_parts(), _fragment_parts()
    )


def uri_references() -> st.SearchStrategy[str]:
    """The rule URI-reference: either of the two."""
    return st.one_of(uris(), relative_references())


def ai_uris() -> st.SearchStrategy[str]:
    """URIs of the scheme ai, as wide as its draft's grammar: some have no canonical form."""
    names = st.lists(st.text("abcXYZ019-", min_size=1, max_size=5), min_size=1, max_size=3).map(".".join)
    segment = st.text("abcXYZ019-._~%", min_size=1, max_size=6).map(lambda text: text.replace("%", "%2D"))
    paths = st.lists(segment.map("/{}".format), max_size=4).map("".join)
    tame = st.builds("ai://{}{}{}".format, names, paths, _query_parts())
    wild = st.builds(
        "{}:{}{}{}".format,
        st.sampled_from(["ai", "AI"]),
        _hierarchical_parts(_PCHAR),
        _query_parts(),
        _fragment_parts(),
    )
    return st.one_of(tame, wild)


def iri_references() -> st.SearchStrategy[str]:
    """References with characters beyond ASCII in host, path, query or fragment, not all of them allowed."""
    wide = st.text(_WIDE + string.ascii_letters + string.digits, max_size=8)
    return st.builds(
        "{}{}{}{}{}".format,
        st.sampled_from(["", "http:", "llm:"]),
        _optional_parts("//", wide),
        _optional_parts("/", wide),
        _optional_parts("?", wide),
        _optional_parts("#", wide),
    )
