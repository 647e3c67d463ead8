"""The vectors kept beside the checkout, from public suites, for URIs, IRIs, addresses and ai names."""

from __future__ import annotations

from typing import Any

import pytest

from onym.errors import URIError, URISyntaxError
from onym.uri.ai import AIURI
from onym.uri.components import format_ipv6, is_ipvfuture, parse_ipv6
from onym.uri.generic import RULES, URI, URIParts
from onym.uri.iri import convert_iri, to_uri
from support import about, as_subtests, load_shared

VALID: list[dict[str, Any]] = load_shared("uri_valid.json")["cases"]
INVALID: list[dict[str, Any]] = load_shared("uri_invalid.json")["cases"]


def by_id(case: dict[str, Any]) -> str:
    return str(case["id"])


def unbracketed(host: str | None) -> str | None:
    return host[1:-1] if host is not None and host[:1] == "[" else host


def test_each_rule_takes_or_refuses_the_text() -> None:
    for case in VALID + INVALID:
        for rule in RULES:
            with about(case):
                takes_or_refuses(rule, case)


def takes_or_refuses(rule: str, case: dict[str, Any]) -> None:
    if case["rules"][rule]:
        assert str(URI.parse(case["string"], rule)) == case["string"]
        return
    with pytest.raises(URISyntaxError) as caught:
        URI.parse(case["string"], rule)
    assert caught.value.component is not None
    assert caught.value.offset is not None
    assert caught.value.clause is not None


def test_the_parts_are_those_of_the_record() -> None:
    for case in VALID:
        expected = dict.fromkeys(URIParts._fields) | case["parts"]
        expected["host"] = unbracketed(expected["host"])
        uri = URI.parse(case["string"])
        assert {name: getattr(uri, name) for name in URIParts._fields} == expected, case["id"]


def test_an_iri_reference_becomes_a_uri_unless_its_host_is_no_name() -> None:
    for case in VALID + INVALID:
        with about(case):
            becomes_a_uri(case)


def becomes_a_uri(case: dict[str, Any]) -> None:
    rule = "URI" if case["rules"]["IRI"] else "URI-reference"
    if not case["rules"]["IRI-reference"]:
        with pytest.raises(URISyntaxError):
            to_uri(case["string"])
        return
    try:
        uri = to_uri(case["string"])
    except URISyntaxError as error:
        # by choice: a host that IDNA refuses, or whose octets are not UTF-8, has no URI to look up
        assert error.component == "host"  # noqa: PT017
        assert error.code in ("uri.bad-idna", "uri.bad-utf8")  # noqa: PT017
    else:
        assert to_uri(str(URI.parse(uri, rule))) == uri


@as_subtests("case", load_shared("uri_resolve.json")["cases"], ids=by_id)
def test_a_reference_resolves_to_the_target(case: dict[str, Any]) -> None:
    base = URI.parse(case["base"])
    if case["status"] == "out-of-scope":
        with pytest.raises(URISyntaxError) as caught:  # RFC 3986 5.1: a base has a scheme
            base.resolve(case["ref"])
        assert caught.value.code == "uri.no-scheme"
        return
    target = str(base.resolve(case["ref"], strict=case["strict"]))
    assert target in case.get("accept", [case["target"]])
    assert target == case["target"]  # where the record leaves a choice: 5.2.4 to the letter


#: where the records leave a choice (docs/decisions): do the two have one normal form?
CHOSEN = {
    "llm://api.openai.com:443/gpt-5": False,  # the default depends on the host; a port undoes an alias
    "llm://127.0.0.1:11434/llama3": False,  # as above
    "llm://api.openai.com:/gpt-5": True,  # RFC 3986 3.2.3: an empty port is omitted
    "llm://h:0443/m": True,  # a port is a decimal number
    "http://example.com/public/%2e%2e/admin": True,  # 6.2.2.2, then 6.2.2.3
    "http://h/a/%2e%2E/%2e./b": True,
    "foo:a/../b": False,  # 5.2.4 to the letter: foo:/b
}


def normal(text: str, level: str) -> str:
    text = to_uri(text) if level.startswith("idna") else text
    return str(URI.parse(text).normalize())


@as_subtests("case", load_shared("uri_normalize.json")["cases"], ids=by_id)
def test_two_texts_have_one_normal_form_or_two(case: dict[str, Any]) -> None:
    if "[::1%25eth0]" in case["a"]:
        with pytest.raises(URISyntaxError):  # a zone identifier is no part of a URI
            normal(case["a"], case["level"])
        return
    same = normal(case["a"], case["level"]) == normal(case["b"], case["level"])
    expected = case["equivalent"]
    if expected == "contested":
        expected = next(CHOSEN[text] for text in (case["a"], case["b"]) if text in CHOSEN)
    assert same is expected


def test_an_ipv6_literal_is_valid_or_not_and_has_its_value() -> None:
    for case in load_shared("ipv6_literals.json")["ipv6"]:
        value = parse_ipv6(case["literal"])
        assert (value is not None) is case["valid_IPv6address"], case
        if value is not None:
            assert value == int(case["value"], 16), case
            assert format_ipv6(value) == case["rfc5952"], case


@as_subtests("case", load_shared("ipv6_literals.json")["ipvfuture"], ids=lambda case: case["literal"])
def test_an_ipvfuture_literal_is_valid_or_not(case: dict[str, Any]) -> None:
    assert is_ipvfuture(case["literal"]) is case["valid_IPvFuture"]


@as_subtests("case", load_shared("idna.json")["cases"], ids=by_id)
def test_a_host_is_mapped_as_uts_46_and_idna_2008_agree(case: dict[str, Any]) -> None:
    accepted = {case["uts46_toascii"]}
    if not case["agree"]:
        # by choice: IDNA 2008 where a name is international, ASCII names as they are
        plain = case["input"].isascii() and "xn--" not in case["input"].lower()
        accepted = {case["input"].lower()} if plain else {case["idna2008_pkg"].get("ascii")}
    try:
        host = convert_iri(f"http://{case['input']}/").ascii_host
    except URISyntaxError:
        host = None
    assert host in accepted


@as_subtests("case", load_shared("scheme_syntax.json")["ai"], ids=by_id)
def test_an_ai_uri_is_accepted_or_refused(case: dict[str, Any]) -> None:
    if case["expected"] == "accept":
        uri = AIURI.parse(case["uri"])
        assert {name: getattr(uri, name) for name in case["parts"]} == case["parts"]
    else:
        with pytest.raises(URIError):
            AIURI.parse(case["uri"])
