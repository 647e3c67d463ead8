"""What may be asked about, and how it is spelt."""

from __future__ import annotations

import pytest

from onym.ai.discovery.evaluation import DiscoveryTarget, parse_discovery_target
from onym.ai.records import Auth, Level, Namespace, Requirements
from onym.ai.settings import ResolverSettings
from onym.errors import URIError, UsageError
from onym.uri.ai import AIURI
from support import as_subtests

AGENTS = Namespace(label="_", anchor="https://agents.example")
ALL = Namespace(label="_", anchor="https://all.example")
SETTINGS = ResolverSettings(contexts={"/agent/": AGENTS, "/": ALL})


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("bank.example", DiscoveryTarget(authority="bank.example")),
        (" Bank.Example:443 ", DiscoveryTarget(authority="bank.example")),
        ("bank.example:8443", DiscoveryTarget(authority="bank.example:8443")),
        ("https://bank.example", DiscoveryTarget(authority="bank.example")),
        ("HTTPS://bank.example/a/../pay?x=1#y", DiscoveryTarget(authority="bank.example", page="/pay?x=1")),
        ("bank", DiscoveryTarget(authority="bank")),
        ("AI://Bank/%70ay?x=1#f", DiscoveryTarget(authority="bank", uri="ai://bank/pay?x=1")),
        ("ai:/agent/x", DiscoveryTarget(authority="_", uri="ai:/agent/x", context=AGENTS)),
        ("ai:/agents/x", DiscoveryTarget(authority="_", uri="ai:/agents/x", context=ALL)),
    ],
)
def test_a_question_has_one_spelling(text: str, asked: DiscoveryTarget) -> None:
    assert parse_discovery_target(text, SETTINGS) == asked


def test_an_ai_uri_may_come_parsed() -> None:
    assert parse_discovery_target(AIURI.parse("ai://bank/pay"), SETTINGS).uri == "ai://bank/pay"


def test_a_dns_authority_has_an_origin_and_others_have_none() -> None:
    assert parse_discovery_target("bank.example", SETTINGS).origin == "https://bank.example"
    assert parse_discovery_target("bank", SETTINGS).origin is None


@as_subtests(
    "text",
    [
        "",
        " ",
        "http://bank.example/",  # prov-093
        "ftp://bank.example/",
        "https://user@bank.example/",
        "user@bank.example",
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "[::1]",
        "bank.example.",
        "bank..example",
        "bänk.example",
        "bank.example\\@evil.example",
        "https://",
        "a" * 3000,
    ],
)
def test_what_names_no_host_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_discovery_target(text, SETTINGS)
    assert caught.value.code == "usage.discover"
    assert caught.value.hint


def test_a_malformed_ai_uri_is_refused_as_one() -> None:
    with pytest.raises(URIError):
        parse_discovery_target("ai://bank/../x", SETTINGS)


def test_no_context_speaks_where_none_was_named() -> None:
    assert parse_discovery_target("ai:/agent/x", ResolverSettings()).context is None


def test_a_context_covers_whole_segments() -> None:
    settings = ResolverSettings(contexts={"/agent": AGENTS})
    assert settings.find_context("/agent") is AGENTS
    assert settings.find_context("/agent/x") is AGENTS
    assert settings.find_context("/agents") is None


def test_what_is_configured_is_never_weakened() -> None:
    # prov-101
    weak = Requirements(signed_results=False, mtls=False, dpop=Level.NONE, auth=Auth.NONE)
    strong = Requirements(signed_results=True, mtls=True, dpop=Level.REQUIRED, auth=Auth.OAUTH2)
    assert ResolverSettings(floor=strong).apply_floor(weak) == strong
    assert ResolverSettings().apply_floor(weak).signed_results
    assert ResolverSettings().apply_floor(strong) == strong
    assert ResolverSettings(floor=weak).apply_floor(weak).signed_results
    supported = Requirements(dpop=Level.SUPPORTED)
    assert ResolverSettings(floor=supported).apply_floor(weak).dpop is Level.SUPPORTED
    assert ResolverSettings(floor=supported).apply_floor(strong).dpop is Level.REQUIRED
