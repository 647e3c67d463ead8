"""What may be asked about, and how it is spelt."""

from __future__ import annotations

import pytest

from onym.ai.discovery.question import Asked, read_question
from onym.ai.records import Auth, Level, Namespace, Requirements
from onym.ai.settings import ResolverSettings
from onym.errors import URIError, UsageError
from onym.uri.ai import AIURI

AGENTS = Namespace(label="_", anchor="https://agents.example")
ALL = Namespace(label="_", anchor="https://all.example")
SETTINGS = ResolverSettings(contexts={"/agent/": AGENTS, "/": ALL})


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("bank.example", Asked(authority="bank.example")),
        (" Bank.Example:443 ", Asked(authority="bank.example")),
        ("bank.example:8443", Asked(authority="bank.example:8443")),
        ("https://bank.example", Asked(authority="bank.example")),
        ("HTTPS://bank.example/a/../pay?x=1#y", Asked(authority="bank.example", page="/pay?x=1")),
        ("bank", Asked(authority="bank")),
        ("AI://Bank/%70ay?x=1#f", Asked(authority="bank", uri="ai://bank/pay?x=1")),
        ("ai:/agent/x", Asked(authority="_", uri="ai:/agent/x", context=AGENTS)),
        ("ai:/agents/x", Asked(authority="_", uri="ai:/agents/x", context=ALL)),
    ],
)
def test_a_question_has_one_spelling(text: str, asked: Asked) -> None:
    assert read_question(text, SETTINGS) == asked


def test_an_ai_uri_may_come_parsed() -> None:
    assert read_question(AIURI.parse("ai://bank/pay"), SETTINGS).uri == "ai://bank/pay"


def test_a_dns_authority_has_an_origin_and_others_have_none() -> None:
    assert read_question("bank.example", SETTINGS).origin == "https://bank.example"
    assert read_question("bank", SETTINGS).origin is None


@pytest.mark.parametrize(
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
        read_question(text, SETTINGS)
    assert caught.value.code == "usage.discover"
    assert caught.value.hint


def test_a_malformed_ai_uri_is_refused_as_one() -> None:
    with pytest.raises(URIError):
        read_question("ai://bank/../x", SETTINGS)


def test_no_context_speaks_where_none_was_named() -> None:
    assert read_question("ai:/agent/x", ResolverSettings()).context is None


def test_a_context_covers_whole_segments() -> None:
    settings = ResolverSettings(contexts={"/agent": AGENTS})
    assert settings.context("/agent") is AGENTS
    assert settings.context("/agent/x") is AGENTS
    assert settings.context("/agents") is None


def test_what_is_configured_is_never_weakened() -> None:
    # prov-101
    weak = Requirements(signed_results=False, mtls=False, dpop=Level.NONE, auth=Auth.NONE)
    strong = Requirements(signed_results=True, mtls=True, dpop=Level.REQUIRED, auth=Auth.OAUTH2)
    assert ResolverSettings(floor=strong).required(weak) == strong
    assert ResolverSettings().required(weak).signed_results
    assert ResolverSettings().required(strong) == strong
    assert ResolverSettings(floor=weak).required(weak).signed_results
    supported = Requirements(dpop=Level.SUPPORTED)
    assert ResolverSettings(floor=supported).required(weak).dpop is Level.SUPPORTED
    assert ResolverSettings(floor=supported).required(strong).dpop is Level.REQUIRED
