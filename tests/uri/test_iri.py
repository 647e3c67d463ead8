"""IRI to URI: RFC 3987 3.1, IDNA 2008 with the UTS-46 mapping."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import OnymError, URILimitError, URISyntaxError
from onym.testing import strategies as ost
from onym.uri.ai import is_a_label
from onym.uri.generic import URI
from onym.uri.iri import convert_iri, to_iri, to_uri
from support import as_subtests, linear_enough


@as_subtests(
    ("iri", "uri"),
    [
        # RFC 3987 3.1
        ("http://résumé.example.org", "http://xn--rsum-bpad.example.org"),
        ("http://www.example.org/red%09rosé#red", "http://www.example.org/red%09ros%C3%A9#red"),
        (
            "http://example.com/\U00010300\U00010301\U00010302",
            "http://example.com/%F0%90%8C%80%F0%90%8C%81%F0%90%8C%82",
        ),
        ("http://validator.w3.org/check?uri=http%3A%2F%2Frésumé.example.org",
         "http://validator.w3.org/check?uri=http%3A%2F%2Fr%C3%A9sum%C3%A9.example.org"),
        ("x://üser:pä@h/ä;ö?ß=\ue000#é", "x://%C3%BCser:p%C3%A4@h/%C3%A4;%C3%B6?%C3%9F=%EE%80%80#%C3%A9"),
        ("é/ü", "%C3%A9/%C3%BC"),
        ("//é:80", "//xn--9ca:80"),
        ("x://:80/é", "x://:80/%C3%A9"),
        ("x://[::FFFF:1]:1/é", "x://[::FFFF:1]:1/%C3%A9"),
        ("x://[v1.A]/é", "x://[v1.A]/%C3%A9"),
        ("urn:é", "urn:%C3%A9"),
        # no Unicode normalisation outside the host (step 1c)
        ("x:e\u0301", "x:e%CC%81"),
        ("x://e\u0301/", "x://xn--9ca/"),
    ],
)  # fmt: skip
def test_an_iri_becomes_the_uri_that_it_stands_for(iri: str, uri: str) -> None:
    assert to_uri(iri) == uri
    assert to_uri(uri) == uri
    assert str(URI.parse(uri)) == uri


@as_subtests(
    ("typed", "looked_up"),
    [
        ("bücher.example", "xn--bcher-kva.example"),
        ("B%C3%9CCHER.example", "xn--bcher-kva.example"),
        ("b%c3%bccher.example", "xn--bcher-kva.example"),
        ("faß.de", "xn--fa-hia.de"),  # non-transitional
        ("日本語。\uff2a\uff30", "xn--wgv71a119e.jp"),
        ("\uff41\uff50\uff49.openai.com", "api.openai.com"),
        ("⑯⑨.example", "169.example"),
        ("lo\u00adcal\u200bhost", "localhost"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("%78n--bcher-kva.example", "xn--bcher-kva.example"),
        ("é.example.", "xn--9ca.example."),
        # a host of plain ASCII is no business of IDNA
        ("My_Host--1.internal", "my_host--1.internal"),
        ("r3---sn-x.example", "r3---sn-x.example"),
        ("a%2Fb%41!", "a%2Fba!"),
        ("", ""),
    ],
)
def test_a_host_comes_out_as_the_name_that_is_looked_up(typed: str, looked_up: str) -> None:
    conversion = convert_iri(f"llm://{typed}/m")
    assert conversion.ascii_host == looked_up
    assert conversion.uri == f"llm://{looked_up}/m"
    assert to_uri(conversion.uri) == conversion.uri


@pytest.mark.parametrize(
    "typed",
    [
        "169。254。169。254",
        "\uff11\uff16\uff19\uff0e\uff12\uff15\uff14\uff0e\uff11\uff16\uff19\uff0e\uff12\uff15\uff14",
        "①⑥⑨.②⑤④.①⑥⑨.②⑤④",
        "169%E3%80%82254%E3%80%82169%E3%80%82254",
        "169。254.169%E3%80%82254",
        "169.254.169.25\u00ad4",
        "%31%36%39.254.169.254",
    ],
)
def test_an_address_in_disguise_comes_out_as_the_address(typed: str) -> None:
    uri = URI.parse(to_uri(f"llm://{typed}/latest"))
    assert (uri.host, uri.host_type) == ("169.254.169.254", "IPv4address")


@as_subtests(
    ("iri", "code", "component", "offset"),
    [
        ("\xe9x:y", "uri.bad-scheme", "scheme", 0),
        ("x://[v1.é]/", "uri.bad-ip-literal", "host", 5),
        ("x://[::\uff11]/", "uri.bad-ipv6", "host", 5),
        ("x://h:\uff18/", "uri.bad-port", "port", 6),
        ("x:é y", "uri.bad-character", "path", 3),
        ("x:é%", "uri.bad-percent-encoding", "path", 3),
        ("x:/é\ue000", "uri.bad-character", "path", 4),
        ("x:é#\ue000", "uri.bad-character", "fragment", 4),
        ("x://\ue000@h/", "uri.bad-character", "userinfo", 4),
        ("x:?\ufffe", "uri.bad-character", "query", 3),
        ("x:?\U000e0001", "uri.bad-character", "query", 3),
        ("/\ud800", "uri.bad-character", "path", 1),
        ("?\x80", "uri.bad-character", "query", 1),
        ("/a\u202eb", "uri.bad-character", "path", 2),
        ("//h\u200e/", "uri.bad-character", "host", 3),
        ("x://é\ue000/", "uri.bad-idna", "host", 4),
        ("x://u@\u2260/", "uri.bad-idna", "host", 6),
        ("x://127.0.0.⑴/", "uri.bad-idna", "host", 4),
        ("x://a\uff052fb/", "uri.bad-idna", "host", 4),
        ("x://é_b/", "uri.bad-idna", "host", 4),
        ("x://é:80@h\u00ad..é/", "uri.bad-idna", "host", 9),
        ("x://\u00ad/", "uri.bad-idna", "host", 4),
        ("x://xn--a/", "uri.bad-idna", "host", 4),
        ("x://é%2Fb/", "uri.bad-idna", "host", 4),
        ("x://a%ff/", "uri.bad-utf8", "host", 5),
    ],
)  # fmt: skip
def test_a_refusal_names_component_and_offset_in_the_iri(
    iri: str, code: str, component: str, offset: int
) -> None:
    with pytest.raises(URISyntaxError) as caught:
        to_uri(iri)
    error = caught.value
    assert (error.code, error.component, error.offset) == (code, component, offset)
    assert error.clause is not None


def test_a_refused_host_is_not_repeated_in_the_error_or_its_cause() -> None:
    with pytest.raises(URISyntaxError) as caught:
        to_uri("x://hunter2\u2260/")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_conversion_shows_both_forms() -> None:
    conversion = convert_iri("http://u:hunter2@Bücher.example/ü")
    assert conversion.iri == "http://u:hunter2@Bücher.example/ü"
    assert conversion.uri == "http://u:hunter2@xn--bcher-kva.example/%C3%BC"
    assert (conversion.host, conversion.ascii_host) == ("Bücher.example", "xn--bcher-kva.example")
    assert conversion.changed
    assert "hunter2" not in repr(conversion)
    with pytest.raises(AttributeError):
        conversion.uri = ""  # type: ignore[misc]


def test_a_uri_is_left_alone() -> None:
    conversion = convert_iri("http://h/a?b#c")
    assert not conversion.changed
    assert convert_iri("a/b").host is None
    assert convert_iri("x:b").ascii_host is None


def test_an_iri_is_text_of_bounded_length() -> None:
    with pytest.raises(TypeError):
        to_uri(b"x:y")  # type: ignore[arg-type]
    with pytest.raises(URILimitError):
        to_uri("x:" + "é" * 70_000)
    assert len(to_uri("x:" + "é" * 70_000, max_length=100_000)) == 2 + 6 * 70_000


@pytest.mark.parametrize(
    ("label", "valid"),
    [
        ("xn--bcher-kva", True),
        ("xn--", False),
        ("xn--bcher-kv", False),
        ("xn--zn7c", False),
        ("xn--abc-", False),
        ("bücher", False),
    ],
)
def test_an_a_label_has_to_survive_decoding_and_encoding(label: str, valid: bool) -> None:
    assert is_a_label(label) is valid


@given(st.one_of(ost.iri_references(), st.text(max_size=20)))
def test_any_text_becomes_a_uri_for_good_or_raises_an_error_of_our_own(text: str) -> None:
    try:
        conversion = convert_iri(text)
    except OnymError:
        return
    assert conversion.uri.isascii()
    uri = URI.parse(conversion.uri)
    assert uri.host == conversion.ascii_host
    assert to_uri(conversion.uri) == conversion.uri


@given(ost.uri_references())
def test_a_uri_changes_in_its_host_alone(text: str) -> None:
    try:
        converted = URI.parse(to_uri(text))
    except URISyntaxError as error:
        assert error.component == "host"  # noqa: PT017  a host may be no name
        return
    before, after = URI.parse(text)._parts, converted._parts
    for name in ("scheme", "userinfo", "port", "path", "query", "fragment"):
        assert getattr(before, name) == getattr(after, name)


@pytest.mark.parametrize(
    "iri",
    ["/" + "é" * 200_000, "//" + "é" * 200_000, "//" + "é." * 100_000 + "/", "?" + "\ue000" * 200_000],
)
def test_a_huge_iri_is_converted_or_refused_in_linear_time(iri: str) -> None:
    with linear_enough():
        try:
            to_uri(iri, max_length=2_000_000)
        except URISyntaxError as error:
            assert error.code == "uri.bad-idna"  # noqa: PT017  no host is that long


def test_idna_is_imported_by_this_module_alone() -> None:
    code = "import sys, onym.uri.generic, onym.uri.ai; sys.exit('idna' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@as_subtests(
    ("uri", "iri"),
    [
        ("http://xn--bcher-kva.example:80/%C3%A9?%c3%a9=%26#%C3%A9", "http://bücher.example:80/é?é=%26#é"),
        ("http://XN--BCHER-KVA.example/", "http://bücher.example/"),
        ("mailto:%C3%A9@example", "mailto:é@example"),
        # RFC 3987 3.2: what is no UTF-8, no character of an IRI, or would not be seen stays as it is
        ("x:/%FC/%C3", "x:/%FC/%C3"),
        ("x:/%C3%A9%E2%80%8B%C3%A9", "x:/é%E2%80%8Bé"),
        ("x:/%E2%80%AEx%C2%A0%E3%80%80", "x:/%E2%80%AEx%C2%A0%E3%80%80"),
        ("x:/%EF%BF%BD", "x:/%EF%BF%BD"),
        ("http://xn--a/", "http://xn--a/"),
        ("http://[::1]/%C3%A9", "http://[::1]/é"),
        ("http://a%C3%A9/", "http://a%C3%A9/"),
    ],
)
def test_a_uri_is_shown_as_the_iri_that_a_person_reads(uri: str, iri: str) -> None:
    assert to_iri(uri) == iri
