"""One spelling for every host, before anything is compared or looked up."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onym.net.hosts import METADATA_NAMES, is_loopback, list_loopback_addresses, parse_host
from support import as_subtests


@pytest.mark.requirement("onym-net-d")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("API.OpenAI.com", "api.openai.com"),
        ("example.com.", "example.com"),
        ("%65xample%2Ecom", "example.com"),
        ("my_service", "my_service"),
        ("a--b.example", "a--b.example"),
        ("xn--fiqs8s.example", "xn--fiqs8s.example"),
        ("127.0.0.1.example.com", "127.0.0.1.example.com"),
        ("0x7f.com", "0x7f.com"),
        ("a" * 63 + ".example", "a" * 63 + ".example"),
    ],
)
def test_a_name_has_one_spelling(text: str, expected: str) -> None:
    assert parse_host(text) == (expected, "name", None, None)


@as_subtests(
    "text",
    [
        "",
        ".",
        "a..b",
        ".a",
        "a.example..",
        "a b",
        "a/b",
        "a%2Fb",
        "a%00b",
        "a%20b",
        "a%",
        "a%4",
        "a%zz",
        "%2565",
        "a%25",
        "%C3%A9",
        "é.example",
        "exa(mple).com",
        "[::1]",
        "::1%25lo",
        "fe80::1%eth0",
        "1:2",
        "-a.example",
        "a-.example",
        "a.-.example",
        "a" * 64 + ".example",
        ".".join(["a" * 60] * 5),
        "127.0.0.1:80",
        "\u212a.example",
    ],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    assert parse_host(text) == ("", "refused", None, "bad-host")


@pytest.mark.requirement("onym-net-d")
@as_subtests(
    "text",
    [
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0x",
        "0177.0.0.1",
        "127.1",
        "127.0.0.01",
        "256.1.1.1",
        "1.2.3.4.",
        "1.2.3.4.5",
        "a.b.0",
        "example.0xff",
        "%31%32%37.1",
        "10",
    ],
)
def test_a_number_that_is_no_dotted_quad_is_refused(text: str) -> None:
    assert parse_host(text).reason == "numeric-host"


def test_addresses_are_spelled_in_one_way() -> None:
    assert parse_host("0:0:0:0:0:0:0:1")[:2] == ("::1", "address")
    assert parse_host("2001:DB8::1").text == "2001:db8::1"
    assert parse_host("%31.2.3.4")[:2] == ("1.2.3.4", "address")


@pytest.mark.requirement("llm-10.5-a")
@as_subtests("name", [*METADATA_NAMES, "a.metadata.google.internal", "METADATA.", "m%65tadata.goog"])
def test_names_of_metadata_services_are_refused(name: str) -> None:
    assert parse_host(name).reason == "metadata-name"


def test_regional_names_of_the_metadata_service_are_refused() -> None:
    assert parse_host("instance-data.eu-west-1.compute.internal").reason == "metadata-name"
    assert parse_host("x.instance-data.eu-west-1.compute.internal").reason == "metadata-name"


@pytest.mark.parametrize(
    "name",
    ["metadata.example.com", "metadata.google.internal.example.com", "api.metadata", "my-metadata.goog"],
)
def test_names_that_only_resemble_them_are_not(name: str) -> None:
    assert parse_host(name).kind == "name"


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("localhost", ("127.0.0.1", "::1")),
        ("LocalHost.", ("127.0.0.1", "::1")),
        ("a.b.localhost", ("127.0.0.1", "::1")),
        ("localhost.localdomain", ("127.0.0.1",)),
        ("ip6-localhost", ("::1",)),
        ("localhost6.localdomain6", ("::1",)),
    ],
)
def test_names_of_this_machine_have_known_addresses(name: str, addresses: tuple[str, ...]) -> None:
    host = parse_host(name)
    assert host.kind == "loopback"
    assert list_loopback_addresses(host.text) == addresses


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("x.localhost", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::ffff:127.0.0.1", False),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
        ("2130706433", False),
    ],
)
def test_this_machine_is_known_by_the_text_alone(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@given(st.text(alphabet="abcxz019.-_%25eE:[]é\0 ", max_size=30))
@example("%2565xample.com")
@example("1.2.3.4")
def test_reading_twice_changes_nothing(text: str) -> None:
    host = parse_host(text)
    if host.kind != "refused":
        assert parse_host(host.text) == host


@given(st.text(max_size=300))
def test_every_text_has_an_outcome(text: str) -> None:
    host = parse_host(text)
    assert (host.kind == "refused") == (host.reason is not None)
