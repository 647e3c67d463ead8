"""Header fields by allow-lists, both ways (AIIP/HTTPS v1 3.14; attacks 24, 26, 35, 36)."""

from __future__ import annotations

import pytest

from onym.ai.gateway.forwarding import (
    format_via,
    get_content_disposition,
    select_client_fields,
    select_upstream_fields,
)
from onym.ai.records import parse_media_type
from onym.errors import AIIPError
from onym.net.messages import Headers
from support import as_subtests

SMUGGLED = [
    b"cookie",
    b"authorization",
    b"dpop",
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-original-url",
    b"x-rewrite-url",
    b"x-http-method-override",
    b"client-cert",
    b"client-cert-chain",
    b"x-ssl-client-cert",
    b"te",
    b"upgrade",
    b"proxy-authorization",
    b"x-anything",
    b"aiip-nonce",
    b"origin",
]


@as_subtests("name", SMUGGLED)
def test_nothing_goes_up_that_is_not_on_the_list(name: bytes) -> None:
    assert select_upstream_fields([(name, b"x")]) == ()


def test_what_is_on_the_list_goes_up() -> None:
    given = [
        (b"accept-language", b"de"),
        (b"content-language", b"en"),
        (b"if-match", b'"a"'),
        (b"if-none-match", b'"b"'),
        (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        (b"prefer", b"return=minimal"),
    ]
    assert dict(select_upstream_fields(given)) == {name.decode(): value.decode() for name, value in given}


def test_what_connection_names_is_for_this_hop() -> None:
    given = [(b"connection", b"close, If-Match"), (b"if-match", b'"a"'), (b"if-none-match", b'"b"')]
    assert select_upstream_fields(given) == (("if-none-match", '"b"'),)


def test_preferences_go_on_and_are_joined() -> None:
    assert select_upstream_fields([(b"prefer", b"respond-async"), (b"prefer", b"return=minimal")]) == (
        ("prefer", "respond-async, return=minimal"),
    )


def test_a_field_beyond_ascii_is_refused() -> None:
    with pytest.raises(AIIPError) as caught:
        select_upstream_fields([(b"accept-language", "é".encode())])
    assert caught.value.code == "aiip.bad-request"


@as_subtests(
    "name",
    [
        "set-cookie",
        "access-control-allow-origin",
        "content-security-policy",
        "strict-transport-security",
        "service-worker-allowed",
        "clear-site-data",
        "location",
        "refresh",
        "link",
        "content-disposition",
        "cache-control",
        "server",
        "content-encoding",
        "transfer-encoding",
        "www-authenticate",
        "nel",
        "alt-svc",
    ],
)
@pytest.mark.requirement("ai-security-f")
def test_nothing_comes_down_that_is_not_on_the_list(name: str) -> None:
    assert select_client_fields(Headers([(name, "x")])) == []


def test_what_is_on_the_list_comes_down_once() -> None:
    given = Headers(
        [("ETag", '"a"'), ("ETag", '"b"'), ("Retry-After", "3"), ("Content-Language", "a\r\nb: c")]
    )
    assert select_client_fields(given) == [("etag", '"a"'), ("retry-after", "3")]


@as_subtests(
    ("content_type", "kept"),
    [
        ("application/json", False),
        ("text/plain; charset=utf-8", False),
        ("Image/PNG", False),
        ("text/html", True),
        ("TEXT/HTML;charset=utf-8", True),
        ("image/svg+xml", True),
        ("application/xhtml+xml", True),
        ("text/xml", True),
        ("application/pdf", True),
        ("text/javascript", True),
        ("multipart/x-mixed-replace", True),
        ("", True),
        (None, True),
    ],
)
def test_content_that_could_act_in_a_browser_is_a_file(content_type: str | None, kept: bool) -> None:
    found = get_content_disposition(content_type)
    assert (found is not None) is kept
    assert found in {None, 'attachment; filename="result"'}


def test_the_media_type_is_without_parameters() -> None:
    assert parse_media_type(" Text/Plain ; a=b") == "text/plain"


def test_via_names_who_passed_the_request() -> None:
    assert format_via([], "gw.example") == "1.1 gw.example"
    assert format_via([b"1.1 a", "1.1 é".encode()], "gw.example") == "1.1 a, 1.1 gw.example"
