"""The anchor document: what of a stranger's JSON is taken, what is refused, and by which member."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onym.ai.discovery_document import (
    MAX_ENDPOINTS,
    MAX_OCTETS,
    derive_anchor,
    encode_discovery_document,
    find_claimed_authority,
    find_signed_metadata,
    get_authority,
    parse_discovery_document,
)
from onym.ai.records import AnchorDocument, Auth, Effects, EndpointEntry, Level, Requirements
from onym.errors import DiscoveryError
from support import as_subtests

ANCHOR = "https://bank.example"
KEYS = f"{ANCHOR}/.well-known/aiip.jwks.json"
#: the draft's own example
SEED = b"""{ "endpoint": "ai://bank/service/payments",
  "jwks": "https://www.bank.example/.well-known/aiip.jwks.json",
  "scopes": [ "initiate-payment", "check-balance" ],
  "policy": { "auth": "oauth2", "mtls": true, "requireSignedResults": true } }"""


def read(members: dict[str, Any], *, authority: str = "bank.example") -> AnchorDocument:
    octets = json.dumps({"jwks": KEYS, **members}).encode()
    return parse_discovery_document(octets, anchor=ANCHOR, authority=authority)


def refused(members: dict[str, Any], named: str) -> str:
    with pytest.raises(DiscoveryError) as caught:
        read(members)
    assert caught.value.code == "aiip.discovery-conflict"
    assert caught.value.clause == "AIIP/HTTPS v1 3.2"
    assert f"`{named}`" in caught.value.message
    return caught.value.message


@pytest.mark.requirement("ai-discovery-e")
def test_the_five_members_of_the_draft_are_a_document() -> None:
    # prov-ok-09
    document = parse_discovery_document(SEED, anchor="https://www.bank.example", authority="bank")
    assert document == AnchorDocument(
        anchor="https://www.bank.example",
        authority="bank",
        service="https://www.bank.example/.well-known/aiip/v1",
        jwks="https://www.bank.example/.well-known/aiip.jwks.json",
        endpoint="ai://bank/service/payments",
        scopes=("initiate-payment", "check-balance"),
        requirements=Requirements(signed_results=True, mtls=True, auth=Auth.OAUTH2),
    )


def test_a_document_needs_no_more_than_its_key_set() -> None:
    document = read({"somebody's": {"own": ["member"]}})
    assert document.requirements == Requirements()
    assert document.endpoint is None
    assert document.service == f"{ANCHOR}/.well-known/aiip/v1"


def test_every_member_is_read() -> None:
    document = read(
        {
            "endpoint": "AI://Bank.Example:443/%7Epay",
            "endpoints": [
                {"uri": "ai://bank.example/pay", "title": "Pay", "effects": "financial", "scopes": ["pay"],
                 "idempotency": True, "async": True, "approval": True, "output": "ignored"},
                {"uri": "ai://bank.example/rates", "effects": "read"},
            ],
            "policy": {"auth": "none", "mtls": False, "requireSignedResults": False, "dpop": "supported"},
            "service": "https://API.bank.example:8443/v1/",
            "resource": "https://API.bank.example:8443",
            "authorization_servers": ["https://login.example/tenant"],
            "receipt_alg_values_supported": ["ES256", "HS256", "none", "ES256"],
            "origins": ["https://www.bank.example:443", "https://shop.example"],
            "versions": ["0", "1"],
            "pin_max_age": 86400,
        }
    )  # fmt: skip
    assert document.endpoint == "ai://bank.example/~pay"
    assert document.endpoints == (
        EndpointEntry(
            uri="ai://bank.example/pay",
            title="Pay",
            effects=Effects.FINANCIAL,
            scopes=("pay",),
            idempotency=True,
            asynchronous=True,
            approval=True,
        ),
        EndpointEntry(uri="ai://bank.example/rates"),
    )
    assert document.requirements == Requirements(signed_results=False, dpop=Level.SUPPORTED)
    assert document.service == "https://api.bank.example:8443/v1"
    assert document.resource == "https://API.bank.example:8443"
    assert document.authorization_servers == ("https://login.example/tenant",)
    assert document.algorithms == ("ES256",)
    assert document.origins == ("https://www.bank.example", "https://shop.example")
    assert document.versions == ("0", "1")
    assert document.pin_max_age == 86400


@pytest.mark.parametrize("value", ["false", 0, None, "", [], {}, "no", 1])
def test_what_is_no_plain_no_asks_for_the_strict_thing(value: object) -> None:
    # prov-102
    asked = read(
        {"policy": {"requireSignedResults": value, "mtls": value, "dpop": value, "requestBinding": value}}
    ).requirements
    strict = Requirements(signed_results=True, mtls=True, dpop=Level.REQUIRED, request_binding=True)
    assert asked == strict


def test_missing_policy_members_ask_for_signed_results_alone() -> None:
    assert read({"policy": {}}).requirements == Requirements(signed_results=True)


@pytest.mark.parametrize("value", ["saml", "", "OAuth2", None, True, 1, ["oauth2"], {}])
def test_an_unknown_way_to_sign_in_is_refused(value: object) -> None:
    refused({"policy": {"auth": value}}, "policy.auth")


@pytest.mark.parametrize("value", [None, "none", [], True])
def test_a_policy_that_is_no_object_is_refused(value: object) -> None:
    refused({"policy": value}, "policy")


@pytest.mark.parametrize(
    "value", ["military", "", None, 7, ["read"], "READ"],
)  # fmt: skip
def test_effects_that_are_not_known_are_the_gravest(value: object) -> None:
    assert read({"endpoints": [{"uri": "ai://bank.example/x", "effects": value}]}).endpoints[0].effects == (
        Effects.PHYSICAL
    )


def test_effects_that_are_not_said_are_the_gravest() -> None:
    row = read({"endpoints": [{"uri": "ai://bank.example/x"}]}).endpoints[0]
    assert row.effects is Effects.PHYSICAL
    assert (row.idempotency, row.asynchronous, row.approval) == (False, False, False)


def test_odd_flags_of_a_row_ask_for_more() -> None:
    row = read(
        {"endpoints": [{"uri": "ai://bank.example/x", "idempotency": "no", "async": "yes", "approval": 0}]}
    ).endpoints[0]
    assert (row.idempotency, row.asynchronous, row.approval) == (True, False, True)


@as_subtests(
    ("member", "value"),
    [
        # prov-094: an origin speaks for its own authority alone
        ("endpoint", "ai://bank/service/payments"),
        ("endpoint", "ai://bank.example:8443/x"),
        ("endpoint", "ai:/x"),
        ("endpoint", "https://bank.example/x"),
        ("endpoint", "ai://user@bank.example/x"),
        ("endpoint", "ai://bank.example/x?q=1"),
        ("endpoint", "ai://bank.example/x#f"),
        ("endpoint", "x" * 1000),
        ("endpoint", ["ai://bank.example/x"]),
        ("endpoint", None),
        ("endpoints", [{"uri": "ai://evil.example/x"}]),
        ("endpoints", [{"uri": "ai://bank.example/x"}, {"uri": "ai://BANK.example/x"}]),
        ("endpoints", {"uri": "ai://bank.example/x"}),
        ("endpoints", [{"uri": "ai://bank.example/x"}] * (MAX_ENDPOINTS + 1)),
        ("jwks", "https://evil.example/keys"),
        ("jwks", "https://bank.example:8443/keys"),
        ("jwks", "http://bank.example/keys"),
        ("jwks", "https://bank.example.evil.example/keys"),
        ("jwks", "https://bank.example/keys?of=evil"),
        ("jwks", "https://bank.example@evil.example/keys"),
        ("jwks", None),
        ("scopes", ["a b"]),
        ("scopes", ["é"]),
        ("scopes", [1]),
        ("scopes", "pay"),
        ("service", "http://bank.example/v1"),
        ("service", "https://bank.example/v1#x"),
        ("service", "https://bank.example/a/../b"),
        ("service", "https://bank.example/a//b"),
        ("service", "https://bank.example/%2e%2e/b"),
        ("service", "https://bank.example:0/b"),
        ("service", "https://bank.example:65536/b"),
        ("service", "https://bank.example:0443/b"),
        ("service", "https://2130706433/b"),
        ("service", "https:///b"),
        ("service", "https://"),
        ("service", "https://b k/"),
        ("service", "x" * 5000),
        ("service", 443),
        ("resource", "https://bank.example/.well-known/aiip/v"),
        ("resource", "https://evil.example"),
        ("authorization_servers", ["http://login.example"]),
        ("authorization_servers", "https://login.example"),
        ("receipt_alg_values_supported", ["HS256", "none", 7]),
        ("receipt_alg_values_supported", []),
        ("origins", ["https://www.bank.example/page"]),
        ("origins", ["*"]),
        ("origins", ["https://a.example"] * 200),
        ("versions", ["2"]),
        ("versions", []),
        ("versions", [1]),
        ("pin_max_age", -1),
        ("pin_max_age", True),
        ("pin_max_age", 1.5),
        ("pin_max_age", "86400"),
    ],
)
def test_a_member_that_cannot_be_what_it_should_refuses_the_document(member: str, value: object) -> None:
    refused({member: value}, member)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({}, "endpoints[0].uri"),
        ({"uri": "ai://bank.example/x", "title": 7}, "endpoints[0].title"),
        ({"uri": "ai://bank.example/x", "scopes": [""]}, "endpoints[0].scopes"),
        ("ai://bank.example/x", "endpoints[0]"),
    ],
)
def test_the_member_of_a_row_is_named(row: object, named: str) -> None:
    refused({"endpoints": [row]}, named)


@as_subtests(
    "octets",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"jwks": "%s", "endpoint": "ai://b.example/1", "endpoint": "ai://b.example/2"}' % KEYS.encode(),
        b'\xef\xbb\xbf{"jwks": "%s"}' % KEYS.encode(),
        json.dumps({"jwks": KEYS}).encode("utf-16"),
        b'{"jwks": "\xff"}',
        b'{"a":' * 30 + b"1" + b"}" * 30,
        b"[" * (MAX_OCTETS - 1),
        b'{"pin_max_age": NaN}',
    ],
)  # fmt: skip
def test_what_has_more_than_one_reading_is_refused(octets: bytes) -> None:
    # prov-103
    with pytest.raises(DiscoveryError) as caught:
        parse_discovery_document(octets, anchor=ANCHOR, authority="bank.example")
    assert caught.value.code == "aiip.discovery-conflict"


def test_the_cap_is_exact() -> None:
    octets = json.dumps({"jwks": KEYS}).encode()
    parse_discovery_document(
        octets + b" " * (MAX_OCTETS - len(octets)), anchor=ANCHOR, authority="bank.example"
    )
    with pytest.raises(DiscoveryError) as caught:
        parse_discovery_document(
            octets + b" " * (MAX_OCTETS + 1 - len(octets)), anchor=ANCHOR, authority="bank.example"
        )
    assert caught.value.code == "aiip.discovery-conflict"


def test_no_key_set_is_no_document() -> None:
    with pytest.raises(DiscoveryError) as caught:
        parse_discovery_document(b"{}", anchor=ANCHOR, authority="bank.example")
    assert "`jwks`" in caught.value.message


def test_an_address_can_be_a_service_as_far_as_the_document_goes() -> None:
    # whether anybody may go there is the policy's to say, where the connection is made
    assert read({"service": "https://[2001:DB8::1]/"}).service == "https://[2001:db8::1]"


def test_a_pin_of_ages_is_cut() -> None:
    assert read({"pin_max_age": 10**30}).pin_max_age == 10**9


@pytest.mark.parametrize(
    ("authority", "anchor"),
    [
        ("bank.example", "https://bank.example"),
        ("bank.example:8443", "https://bank.example:8443"),
        ("bank", None),
        ("bank:8443", None),
        ("_", None),
    ],
)
def test_dns_authorities_are_their_own_anchor(authority: str, anchor: str | None) -> None:
    assert derive_anchor(authority) == anchor


def test_a_uri_without_authority_belongs_to_a_context() -> None:
    assert get_authority("ai:/agent/x") == "_"
    assert get_authority("ai://bank.example:8443/x") == "bank.example:8443"


@pytest.mark.parametrize(
    ("members", "claimed"),
    [
        ({"endpoint": "ai://bank/x"}, "bank"),
        ({"endpoints": [{"uri": "ai://Other.example/x"}]}, "other.example"),
        ({}, None),
        ({"endpoint": 7}, None),
    ],
)
def test_a_claim_can_be_seen_without_being_believed(members: dict[str, Any], claimed: str | None) -> None:
    assert find_claimed_authority(json.dumps(members).encode()) == claimed


entries = st.builds(
    EndpointEntry,
    uri=st.from_regex(r"ai://bank\.example/[a-z]{1,8}", fullmatch=True),
    title=st.none() | st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()),
    effects=st.sampled_from(Effects),
    scopes=st.lists(st.sampled_from(["a", "b"]), unique=True).map(tuple),
    idempotency=st.booleans(),
    asynchronous=st.booleans(),
    approval=st.booleans(),
)
documents = st.builds(
    AnchorDocument,
    anchor=st.just(ANCHOR),
    authority=st.just("bank.example"),
    service=st.sampled_from([f"{ANCHOR}/.well-known/aiip/v1", "https://api.bank.example:8443"]),
    jwks=st.just(KEYS),
    endpoint=st.none() | st.just("ai://bank.example/"),
    endpoints=st.lists(entries, unique_by=lambda each: each.uri, max_size=4).map(tuple),
    scopes=st.lists(st.sampled_from(["pay", "read"]), unique=True).map(tuple),
    requirements=st.builds(
        Requirements,
        signed_results=st.booleans(),
        mtls=st.booleans(),
        dpop=st.sampled_from(Level),
        auth=st.sampled_from(Auth),
    ),
    authorization_servers=st.just(("https://login.example",)),
    algorithms=st.just(("ES256",)),
    origins=st.just(("https://www.bank.example",)),
    pin_max_age=st.integers(0, 10**6),
)


@given(documents)
def test_what_is_written_is_read_back(document: AnchorDocument) -> None:
    octets = encode_discovery_document(document)
    assert parse_discovery_document(octets, anchor=ANCHOR, authority="bank.example") == document


def test_a_resource_is_written_too() -> None:
    document = replace(read({}), resource=ANCHOR)
    assert (
        parse_discovery_document(encode_discovery_document(document), anchor=ANCHOR, authority="bank.example")
        == document
    )


def test_a_text_with_half_a_character_is_refused() -> None:
    refused({"endpoints": [{"uri": "ai://bank.example/a", "title": "\ud800"}]}, "endpoints[0].title")


def test_what_is_signed_stands_beside_the_document_and_is_not_read_by_itself() -> None:
    octets = encode_discovery_document(read({"scopes": ["a"]}), "a.b.c")
    assert find_signed_metadata(octets) == "a.b.c"
    assert parse_discovery_document(octets, anchor=ANCHOR, authority="bank.example").scopes == ("a",)
    assert find_signed_metadata(encode_discovery_document(read({}))) is None
    won = parse_discovery_document(
        octets, anchor=ANCHOR, authority="bank.example", attested={"scopes": ["b"]}
    )
    assert won.scopes == ("b",)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
members = st.sampled_from(
    ["endpoint", "endpoints", "jwks", "scopes", "policy", "service", "resource", "authorization_servers",
     "receipt_alg_values_supported", "origins", "versions", "pin_max_age", "signed_metadata"]
)  # fmt: skip


@given(st.dictionaries(members, json_values), st.booleans())
@example({"service": "https://[::1"}, True)
def test_nothing_but_a_refusal_comes_of_any_json(found: dict[str, Any], keys: bool) -> None:
    octets = json.dumps({**({"jwks": KEYS} if keys else {}), **found}).encode()
    try:
        document = parse_discovery_document(octets, anchor=ANCHOR, authority="bank.example")
    except DiscoveryError:
        return
    assert document.jwks.startswith(ANCHOR)


@given(st.binary(max_size=200))
def test_nothing_but_a_refusal_comes_of_any_octets(octets: bytes) -> None:
    with pytest.raises(DiscoveryError):
        parse_discovery_document(octets, anchor=ANCHOR, authority="bank.example")
