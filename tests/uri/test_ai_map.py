"""The mapping ai: <-> HTTPS: a bijection that browsers and HTTP clients leave alone."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from urllib.parse import urlsplit

import ada_url
import httpx2
import pytest
import urllib3
import yarl
from hypothesis import given, reject
from hypothesis import strategies as st

from onym.errors import AIURIError, OnymError, URIError, UsageError
from onym.testing import strategies as ost
from onym.uri.ai import AIURI, from_target, to_https, to_path
from onym.uri.components import PCHAR_SEGMENT, QUERY_NAME, QUERY_VALUE
from support import as_subtests, load_shared

GATEWAY = "https://ai.example/gateway"
BASES = [
    GATEWAY,
    "https://ai.example",
    "https://ai.example:8443/a/b;c/~d",
    "https://127.0.0.1:8443/.well-known/aiip/v1",
    "https://[2001:db8::1]/g",
]


def whole(text: str) -> str:
    return text.replace("%", "%2B")


def respelt(text: str) -> str:
    """Other capitals in scheme, host and triplets, an encoded letter, a port that goes without saying."""
    head, slashes, rest = text.partition("://")
    if not slashes:
        return "Ai:" + re.sub("%..", lambda found: found[0].lower(), text[3:])
    host, slash, path = rest.partition("/")
    host = host.upper() if ":" in host or "?" in host else f"{host.upper()}:443"
    return f"{head.upper()}://{host}{slash}{path.replace('a', '%61')}" if slash else f"AI://{rest}"


LABELS = st.text("abcxyz019-", min_size=1, max_size=6)
HOSTS = st.one_of(
    st.lists(LABELS, min_size=1, max_size=3).map(".".join),
    st.sampled_from(["bank", "xn--bcher-kva.example", "ai.example", "a--b.example", "0x7g"]),
)
AUTHORITIES = st.one_of(HOSTS, st.builds("{}:{}".format, HOSTS, st.integers(1, 65_535)))
#: printable, composed, with triplets of one to four octets
LETTERS = st.characters(categories=["L", "Nd", "S", "P"], exclude_characters="/\\?#%&=;+'")
TEXTS = st.text(LETTERS, min_size=1, max_size=6).map(lambda text: unicodedata.normalize("NFC", text))
SEGMENTS = st.one_of(TEXTS.map(PCHAR_SEGMENT.quote), st.text("abZ09-_~!$&'()*+,;=:@", min_size=1, max_size=8))
PATHS = st.lists(SEGMENTS, min_size=1, max_size=4).map(lambda segments: "/" + "/".join(segments))
NAMES = st.one_of(TEXTS.map(QUERY_NAME.quote), st.text("abZ09-._~!$()*,:@/?", min_size=1, max_size=6))
VALUES = st.one_of(
    st.text(LETTERS, max_size=6).map(QUERY_VALUE.quote), st.text("ab=-%", max_size=6).map(whole)
)
QUERIES = st.one_of(
    st.just(""),
    st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=3, unique_by=lambda pair: pair[0]).map(
        lambda pairs: "?" + "&".join(f"{name}={value}" for name, value in pairs)
    ),
)
AI_URIS = st.one_of(
    st.builds("ai://{}{}{}".format, AUTHORITIES, st.one_of(PATHS, st.sampled_from(["", "/"])), QUERIES),
    st.builds("ai:{}{}".format, PATHS, QUERIES),
)
#: a URI, and the same spelt otherwise or quite another
TWO = AI_URIS.flatmap(lambda text: st.tuples(st.just(text), st.one_of(AI_URIS, st.just(respelt(text)))))
#: what a stranger may send: near misses of every kind behind the prefix, or not even behind it
TARGETS = st.one_of(
    st.builds("/gateway/{}{}{}".format, st.one_of(AUTHORITIES, st.just("_")), PATHS, QUERIES),
    ost.ai_uris().map(lambda text: "/gateway/" + text.partition(":")[2].lstrip("/")),
    TWO.map(lambda two: "/gateway/" + two[1].partition(":")[2].lstrip("/")),
    st.text("/gatewy_%2eE:@?#;.\\b", max_size=20).map("/gateway/".__add__),
    st.text(st.characters(max_codepoint=255), max_size=12),
)


def target_of(text: str) -> AIURI:
    try:
        return AIURI.parse(text).target
    except URIError:
        reject()


def parted(target: str) -> tuple[bytes, bytes]:
    """Raw path and query, as a server hands them on."""
    path, _, query = target.partition("?")
    return path.encode("latin-1"), query.encode("latin-1")


@given(AI_URIS)
def test_the_canonical_form_of_a_canonical_form_is_itself(text: str) -> None:
    target = target_of(text)
    assert target.canonical() == str(target)
    assert target.target == target


@pytest.mark.requirement("ai-gateway-a")
@given(AI_URIS, st.sampled_from(BASES))
def test_the_way_back_gives_the_uri_that_was_mapped(text: str, base: str) -> None:
    target = target_of(text)
    url = to_https(base, AIURI.parse(text))
    assert url.startswith(base + "/")
    prefix = "/".join(["", *base.split("/")[3:]])
    path = to_path(prefix, target)
    assert url.endswith(path)
    assert from_target(prefix, *parted(path)) == target


@given(TWO)
def test_two_uris_have_one_url_exactly_when_they_have_one_canonical_form(two: tuple[str, str]) -> None:
    first, second = map(target_of, two)
    assert (to_https(GATEWAY, first) == to_https(GATEWAY, second)) is (first == second)


@pytest.mark.requirement("ai-gateway-f")
@given(TARGETS)
def test_an_accepted_target_is_octet_by_octet_what_its_uri_maps_to(target: str) -> None:
    path, query = parted(target)
    try:
        uri = from_target("/gateway", path, query)
    except OnymError as error:
        assert error.code.startswith(("ai.", "uri."))  # noqa: PT017
        return
    # a ? without a query is what ASGI cannot tell
    assert to_path("/gateway", uri) == (target if query else path.decode("latin-1"))
    assert uri.canonical() == str(uri)


CLIENTS: dict[str, Callable[[str], str]] = {
    "ada-url (WHATWG)": lambda url: str(ada_url.URL(url).href),
    "httpx2": lambda url: str(httpx2.URL(url)),
    "yarl": lambda url: str(yarl.URL(url, encoded=True)),
    "urllib3": lambda url: str(urllib3.util.parse_url(url).url),
    "urllib.parse": lambda url: urlsplit(url).geturl(),
}


@pytest.mark.parametrize("client", sorted(CLIENTS))
@given(text=AI_URIS, base=st.sampled_from(BASES))
def test_a_client_leaves_the_url_as_it_is(client: str, text: str, base: str) -> None:
    url = to_https(base, target_of(text))
    assert CLIENTS[client](url) == url


#: each octet: raw, as a triplet in either case, and within a character of two or three octets
WRITTEN = [
    text
    for octet in range(256)
    for text in (chr(octet), f"%{octet:02X}", f"%{octet:02x}", f"%C3%{octet:02X}", f"%E2%80%{octet:02X}")
]


@pytest.mark.parametrize("place", ["/{}", "/x{}y", "/x?{}", "/x?a{}b=1", "/x?a=b{}c", "{}/x", "/{}{}/y"])
def test_every_octet_in_every_place_is_refused_or_stable(place: str) -> None:
    accepted = 0
    for written in WRITTEN:
        path, query = parted("/gateway/bank" + place.format(written, written))
        try:
            uri = from_target("/gateway", path, query)
        except URIError:
            continue
        accepted += 1
        url = to_https(GATEWAY, uri)
        assert url == f"https://ai.example{path.decode()}" + (f"?{query.decode()}" if query else "")
        assert {name: client(url) for name, client in CLIENTS.items()} == dict.fromkeys(CLIENTS, url)
    assert accepted > 30


@given(AI_URIS)
def test_httpx2_sends_the_very_octets(text: str) -> None:
    target = target_of(text)
    assert httpx2.URL(to_https(GATEWAY, target)).raw_path == to_path("/gateway", target).encode()


@pytest.mark.requirement("ai-gateway-d")
def test_the_example_of_the_draft_is_mapped_byte_for_byte() -> None:
    uri = AIURI.parse("ai://bank/service/payments?amount=10&currency=USD")
    url = "https://ai.example/gateway/bank/service/payments?amount=10&currency=USD"
    assert to_https(GATEWAY, uri) == url


#: the constructs of the shared attacks on a gateway's mapping, each with what refuses it
ATTACKS = {
    "prov-105": [("/bank/..%252fadmin", "ai.double-encoding"), ("/bank/a%25%32%65", "ai.double-encoding")],
    "prov-106": [
        ("/bank/%2e%2e/other/pay", "ai.dot-segment"),
        ("/bank/a%2f..%2f..%2fother", "ai.forbidden-octet"),
        ("/bank/../other/pay", "ai.dot-segment"),
    ],
    "prov-107": [
        ("/bank%2f..%2fevil/x", "ai.bad-host"),
        ("/bank%2fevil/x", "ai.bad-host"),
        ("/user@bank/x", "ai.userinfo"),
        ("/bank:443@evil/x", "ai.userinfo"),
        ("/bank\\evil/x", "uri.bad-character"),
        ("/bank%5cevil/x", "ai.bad-host"),
    ],
    "prov-108": [
        ("//x", "ai.no-authority"),
        ("/", "ai.no-authority"),
        ("///evil/x", "ai.no-authority"),
        ("/_//evil/x", "ai.non-canonical"),
        ("/_", "ai.no-path"),
    ],
    "prov-109": [
        ("/bank/x#top", "ai.bad-target"),
        ("/bank/x%3Fa=1", "ai.forbidden-octet"),
        ("/bank/pay?amount=10%C2%A4cy=USD", "ai.ambiguous-query"),
        ("/bank/pay?amount=10&amount=1000", "ai.duplicate-name"),
        ("/bank/pay?amount=10&Amount=1000", "ai.duplicate-name"),
    ],
    "prov-110": [
        ("/bank/x%0d%0aSet-Cookie:%20a", "ai.forbidden-octet"),
        ("/bank/x?a=%0D%0ASet-Cookie:%20a", "ai.forbidden-octet"),
        ("/bank/x?a=%C2%85", "ai.forbidden-octet"),
    ],
}


@pytest.mark.requirement("ai-gateway-f")
@as_subtests(
    ("rest", "code"),
    [pytest.param(*case, id=f"{name} {case[0]}") for name in ATTACKS for case in ATTACKS[name]],
)
def test_an_attack_on_the_mapping_is_refused(rest: str, code: str) -> None:
    with pytest.raises(URIError) as caught:
        from_target("/gateway", *parted(f"/gateway{rest}"))
    assert caught.value.code == code
    if "#" not in rest and not rest.startswith("/_//"):  # those two are good names, in the wrong place
        with pytest.raises(URIError):
            to_https(GATEWAY, AIURI.parse("ai:/" + rest))


def test_the_constructs_are_those_of_the_shared_attacks() -> None:
    shared = load_shared("provenance_attacks.json")
    known = {case["id"]: case["construct"] for case in shared["attacks"]}
    for name, cases in ATTACKS.items():
        assert name in known
        if name in ("prov-105", "prov-106", "prov-107"):
            assert any(rest in known[name] for rest, _ in cases), name
    control = next(each for each in shared["positive_controls"] if each["id"] == "prov-ok-10")["case"]
    uri, _, url = control.partition(" mapped to ")
    assert to_https(GATEWAY, AIURI.parse(uri)) == url


@pytest.mark.parametrize("authority", ["ai.example", "AI.Example", "ai.example:443", "AI.EXAMPLE:443"])
def test_a_gateway_knows_itself_by_any_spelling_of_its_name(authority: str) -> None:
    """prov-114: recursion. The gateway compares one text."""
    assert AIURI.parse(f"ai://{authority}/gateway/ai.example/x").authority_text == "ai.example"


def test_a_fragment_is_never_mapped() -> None:
    assert to_https(GATEWAY, AIURI.parse("ai://bank/x?a=1#top")) == f"{GATEWAY}/bank/x?a=1"


def test_a_base_may_end_with_its_slash() -> None:
    uri = AIURI.parse("ai://bank/x")
    assert to_https("https://ai.example/", uri) == "https://ai.example/bank/x"
    assert to_https("https://ai.example/gateway/", uri) == "https://ai.example/gateway/bank/x"
    assert to_https("https://ai.example/%C3%A9", uri) == "https://ai.example/%C3%A9/bank/x"


@as_subtests(
    "base",
    [
        "http://ai.example",
        "HTTPS://ai.example",
        "ai.example",
        "https:///gateway",
        "https://",
        "https:/gateway",
        "https://u@ai.example",
        "https://ai.example?a",
        "https://ai.example/#a",
        "https://AI.example",
        "https://ai.example:443",
        "https://ai.example:",
        "https://ai.example//",
        "https://ai.example/a//b",
        "https://ai.example/a/../b",
        "https://ai.example/%7Ea",
        "https://ai.example/%2fa",
        "https://ai.example/é",
        "https://ai.example:x/",
    ],
)
def test_a_base_that_a_client_could_rewrite_is_refused(base: str) -> None:
    with pytest.raises(UsageError) as caught:
        to_https(base, AIURI.parse("ai://bank/x"))
    assert caught.value.code == "ai.bad-base"


@pytest.mark.parametrize("prefix", ["/", "gateway", "/gateway/", "//evil/x", "/a?b", "/a#b", "/%61", "/a b"])
def test_a_prefix_that_is_no_canonical_path_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError):
        from_target(prefix, b"/gateway/bank/x", b"")
    with pytest.raises(UsageError):
        to_path(prefix, AIURI.parse("ai://bank/x"))


def test_a_refusal_offers_the_canonical_form_and_does_nothing_with_it() -> None:
    with pytest.raises(AIURIError) as caught:
        from_target("", b"/Bank/%7ex", b"a=%7e")
    error = caught.value
    assert (error.code, error.hint) == ("ai.non-canonical", "ai://bank/~x?a=~")
    assert (error.component, error.offset) == (None, None)


def test_a_uri_without_a_canonical_form_has_no_url() -> None:
    with pytest.raises(AIURIError) as caught:
        to_https(GATEWAY, AIURI.parse("ai://bank/.."))
    assert caught.value.code == "ai.dot-segment"
