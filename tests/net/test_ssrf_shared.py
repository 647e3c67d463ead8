"""The shared SSRF cases, each asked through the URI reader and the policy as a client would."""

from __future__ import annotations

from typing import Any

import pytest

from onym.errors import OnymError, URIError
from onym.net.hosts import PUBLIC, classify_address, parse_address, parse_host
from onym.net.policy import Decision, evaluate_uri
from onym.uri.llm import LLMURI
from support import about, as_subtests, load_shared

DATA = load_shared("ssrf.json")
CASES = DATA["cases"]
#: "untrusted input, no allowlist, IP literals permitted by configuration"; any port, for the cases vary it
LENIENT = {"preset": "untrusted", "allow_ip_literals": True, "ports": None}
PRODUCTION = {"preset": "untrusted", "ports": None}
EXPECTED = {"allow": "allow", "allow-only-if-pinned": "allow", "block": "block"}


def verdict(uri: str | LLMURI, policy: dict[str, Any], dns: dict[str, Any] | None = None) -> str:
    """The outcome in the words of the vectors."""
    try:
        return "allow" if evaluate_uri(uri, policy, dns).allowed else "block"
    except URIError:
        return "reject-as-malformed"


def by_id(case: dict[str, Any]) -> str:
    return str(case["id"])


@pytest.mark.requirement("llm-10.5-a", "llm-10.5-b")
def test_every_case_comes_out_as_recorded() -> None:
    for case in CASES:
        with about(case):
            comes_out_as_recorded(case)


def comes_out_as_recorded(case: dict[str, Any]) -> None:
    if case["verdict"] != "depends-on-DNS":
        assert verdict(case["uri"], LENIENT) in case["accept"]
        return
    for dns in case["dns_cases"]:
        found = verdict(case["uri"], LENIENT, dns)
        if found == "reject-as-malformed":
            assert found in case["accept"]
        elif dns["expected"] != "allow-or-block":
            assert found == EXPECTED[dns["expected"]]


@pytest.mark.requirement("llm-10.5-a")
@pytest.mark.parametrize("preset", ["trusted", "untrusted"])
def test_what_must_be_refused_is_refused_whatever_a_lookup_would_say(preset: str) -> None:
    policy = {"preset": preset, "allow_ip_literals": True, "ports": None}
    for case in CASES:
        if case["must_refuse"]:
            assert verdict(case["uri"], policy, {"answers": ["93.184.216.34"]}) != "allow", case


@pytest.mark.requirement("llm-10.5-c")
def test_production_refuses_ip_literals_and_lets_names_be_decided_by_their_addresses() -> None:
    for case in CASES:
        with about(case):
            production_decides_by_addresses(case)


def production_decides_by_addresses(case: dict[str, Any]) -> None:
    expected = case["verdict_production"]
    if expected == "depends-on-DNS":
        assert {verdict(case["uri"], PRODUCTION, dns) for dns in case["dns_cases"]} <= {
            *(EXPECTED[dns["expected"]] for dns in case["dns_cases"]),
            *case["accept"],
        }
    else:
        assert verdict(case["uri"], PRODUCTION) != "allow"


@pytest.mark.requirement("llm-10.5-e")
@pytest.mark.parametrize("case", [each for each in CASES if "verdict_local" in each], ids=by_id)
def test_loopback_is_reached_once_it_is_allowed(case: dict[str, Any]) -> None:
    assert verdict(case["uri"], {"preset": "local"}) == case["verdict_local"]


@as_subtests("case", [each for each in CASES if not each["rfc3986_valid"]], ids=by_id)
def test_unicode_hosts_are_judged_by_what_they_convert_to(case: dict[str, Any]) -> None:
    try:
        uri = LLMURI.from_iri(case["uri"])
    except OnymError:
        assert not case.get("benign")
        return
    found = verdict(uri, LENIENT, {"answers": ["93.184.216.34"]})
    assert found == ("allow" if case.get("benign") else "block")


@as_subtests("record", DATA["external_address_verdicts"], ids=lambda record: str(record["input"]))
def test_addresses_of_other_suites_are_classified_as_recorded(record: dict[str, Any]) -> None:
    address = parse_address(record["input"])
    if address is None:
        assert parse_host(record["input"]).kind == "refused"
        found = "block"
    else:
        found = "allow" if classify_address(address) == PUBLIC else "block"
    assert record["our"] in (found, "contested")


PITFALLS = load_shared("ipaddress_pitfalls.json")
#: of all the addresses that `ipaddress` gets wrong by version, those that are public
REALLY_PUBLIC = {"::ffff:8.8.8.8", "2606:4700::1111", "2a00:1450::1"}


@as_subtests("record", PITFALLS["predicates"], ids=lambda record: str(record["addr"]))
def test_the_table_is_right_where_ipaddress_is_wrong(record: dict[str, Any]) -> None:
    address = parse_address(record["addr"])
    public = address is not None and classify_address(address) == PUBLIC
    assert public == (record["addr"] in REALLY_PUBLIC)


@as_subtests("text", PITFALLS["parsing_py3.11.7"]["rejected"])
def test_what_is_no_address_is_read_as_none(text: str) -> None:
    assert parse_address(text.removesuffix(" (str)")) is None


def test_a_decision_is_what_a_connection_would_use() -> None:
    dns = {"sequence": [["93.184.216.34"], ["127.0.0.1"]]}
    expected = Decision(True, None, ("93.184.216.34",), "rebind.example")
    assert evaluate_uri("llm://rebind.example/m", {"preset": "untrusted"}, dns) == expected
