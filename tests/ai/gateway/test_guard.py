"""What a gateway refuses before it looks at anything (AIIP/HTTPS v1 3.14; attacks 22 to 24)."""

from __future__ import annotations

import pytest

from onym.ai.messages import (
    LONGEST_HEADERS,
    LONGEST_TARGET,
    MAX_FIELDS,
    MOST_HOPS,
    GatewayRequestHead,
    validate_gateway_head,
)
from onym.errors import AIIPError
from support import as_subtests

HOST = (b"host", b"gw.example")


def check(*fields: tuple[bytes, bytes], path: bytes = b"/gateway/a.example/x", **more: bytes) -> None:
    validate_gateway_head(
        GatewayRequestHead(path=path, fields=(HOST, *fields), **more), hosts={"gw.example"}, name="gw.example"
    )


def refusal(*fields: tuple[bytes, bytes], **more: bytes) -> AIIPError:
    with pytest.raises(AIIPError) as caught:
        check(*fields, **more)
    return caught.value


def test_a_plain_request_passes() -> None:
    check(
        (b"accept", b"*/*"),
        (b"accept", b"text/plain"),
        (b"content-length", b"3"),
        (b"aiip-nonce", b"n"),
        query=b"a=1",
        target=b"/gateway/a.example/x?a=1",
    )


@pytest.mark.requirement("ai-gateway-f")
@as_subtests(
    "fields",
    [
        pytest.param([HOST], id="two Host fields"),
        pytest.param([(b"authorization", b"a"), (b"authorization", b"b")], id="two Authorization"),
        pytest.param([(b"dpop", b"a"), (b"dpop", b"b")], id="two DPoP"),
        pytest.param([(b"content-length", b"1"), (b"content-length", b"1")], id="two Content-Length"),
        pytest.param([(b"content-type", b"a/b"), (b"content-type", b"a/b")], id="two Content-Type"),
        pytest.param([(b"aiip-nonce", b"a"), (b"aiip-nonce", b"b")], id="two AIIP-Nonce"),
        pytest.param([(b"aiip-anything", b"a"), (b"aiip-anything", b"b")], id="two of any AIIP field"),
        pytest.param([(b"idempotency-key", b'"a"'), (b"idempotency-key", b'"a"')], id="two Idempotency-Key"),
        pytest.param([(b"sec-fetch-site", b"none"), (b"sec-fetch-site", b"none")], id="two Sec-Fetch-Site"),
        pytest.param([(b"client_cert", b"x")], id="underscore in a name"),
        pytest.param([(b"content-length", b"1"), (b"transfer-encoding", b"chunked")], id="two lengths"),
        pytest.param([(b"accept", b"a\r\n b")], id="obs-fold"),
        pytest.param([(b"accept", b"a\nx: b")], id="line feed in a value"),
        pytest.param([(b"accept", b"a\x00")], id="NUL in a value"),
    ],
)
def test_a_field_that_could_be_read_in_two_ways_is_refused(fields: list[tuple[bytes, bytes]]) -> None:
    error = refusal(*fields)
    assert error.code == "aiip.bad-request"
    assert error.clause == "AIIP/HTTPS v1 3.14"


@pytest.mark.parametrize("host", [b"evil.example", b"gw.example:8443", b"gw.example.", b""])
def test_another_host_is_refused(host: bytes) -> None:
    with pytest.raises(AIIPError) as caught:
        validate_gateway_head(
            GatewayRequestHead(path=b"/", fields=[(b"host", host)]), hosts={"gw.example"}, name="gw.example"
        )
    assert caught.value.code == "aiip.bad-request"


def test_a_host_in_capitals_is_the_same_host() -> None:
    validate_gateway_head(
        GatewayRequestHead(path=b"/", fields=[(b"host", b"GW.example")]),
        hosts={"gw.example"},
        name="gw.example",
    )


def test_a_request_without_host_is_refused() -> None:
    with pytest.raises(AIIPError) as caught:
        validate_gateway_head(GatewayRequestHead(path=b"/"), hosts={"gw.example"}, name="gw.example")
    assert caught.value.code == "aiip.bad-request"


@pytest.mark.parametrize(
    "more",
    [
        {"target": b"http://evil.example/gateway/a.example/x"},
        {"target": b"/gateway/a.example/x#fragment"},
        {"path": b"/gateway/a.example/x#fragment"},
        {"query": b"a=1#fragment"},
        {"path": b"gateway"},
        {"path": b""},
    ],
)
def test_an_absolute_form_and_a_fragment_are_refused(more: dict[str, bytes]) -> None:
    assert refusal(**more).code == "aiip.bad-request"


def test_what_is_too_long_is_refused() -> None:
    assert refusal(path=b"/" + b"a" * LONGEST_TARGET).code == "aiip.too-large"
    assert refusal((b"x", b"a" * LONGEST_HEADERS)).code == "aiip.too-large"
    assert refusal(*[(b"x", b"a")] * MAX_FIELDS).code == "aiip.too-large"


@pytest.mark.parametrize(
    "via", [b"1.1 gw.example", b"1.1 proxy, 1.1 GW.example (x)", b", ".join([b"1.1 other"] * (MOST_HOPS + 1))]
)
def test_a_request_that_went_round_is_refused(via: bytes) -> None:
    error = refusal((b"via", via))
    assert (error.code, error.clause) == ("aiip.policy-denied", "RFC 9110 7.6.3")


def test_other_gateways_on_the_way_are_no_loop() -> None:
    check((b"via", b"1.1 gw.example.org, 1.1 proxy"), (b"via", b"1.0"))
