"""A real gateway before a real authority: what is asked for comes back, verified, with both receipts."""

from __future__ import annotations

import json

import pytest

from gateway_support import World
from onym.ai.gateway.audit import verify_log
from onym.ai.gateway.forwarding import POLICY_HASH, hash_upstream_receipt
from onym.ai.messages import CODES
from onym.net.messages import SSEDecoder
from onym.sign.keys import read_authority_keys
from onym.sign.receipts import GATEWAY, Expected, request_hash, verify_filed, verify_receipt

NONCE = "n" * 22


def target(site: World, path: str) -> str:
    return f"ai://{site.authority}{path}"


@pytest.mark.requirement("ai-interop-a", "ai-gateway-a", "ai-gateway-b", "ai-gateway-c", "ai-intro-b")
def test_a_result_comes_back_with_its_receipt_unchanged(site: World) -> None:
    answer = site.ask("POST", "/tool/add", b'{"a":1,"b":2}', AIIP_Nonce=NONCE)
    assert (answer.status, answer.json()) == (200, {"sum": 3, "note": ""})
    keys = read_authority_keys(site.endpoint.app and _jwks(site))
    receipt = verify_filed(answer.headers["aiip-receipt"], keys, body=answer.body)
    assert receipt.subject == target(site, "/tool/add")
    assert receipt.audience == site.base


def _jwks(site: World) -> bytes:
    """The authority's key set, past the gateway."""
    import http.client
    import ssl

    host, _, port = site.authority.partition(":")
    context = ssl.create_default_context(cafile=str(site.folder / "ca.pem"))
    context.check_hostname = False
    connection = http.client.HTTPSConnection("127.0.0.1", int(port), context=context, timeout=300)
    connection.request("GET", "/.well-known/aiip.jwks.json", headers={"Host": f"{host}:{port}"})
    try:
        return connection.getresponse().read()
    finally:
        connection.close()


@pytest.mark.requirement("ai-gateway-h", "ai-security-d")
def test_the_gateway_signs_that_it_verified(site: World) -> None:
    body = b'{"a":1,"b":2}'
    answer = site.ask("POST", "/tool/add", body, AIIP_Nonce=NONCE)
    keys = read_authority_keys(site.at("GET", "/.well-known/aiip.jwks.json").body)
    import time

    from onym.sign.receipts import content_digest

    expected = Expected(
        issuer=site.base,
        subject=target(site, "/tool/add"),
        audience="anonymous",
        nonce=NONCE,
        request=request_hash(
            method="POST",
            target=target(site, "/tool/add"),
            digest=content_digest(body),
            content_type="application/json",
            idempotency_key=None,
        ),
        status=200,
        content_type="application/json",
        body=answer.body,
    )
    receipt = verify_receipt(
        answer.headers["aiip-gateway-receipt"],
        keys,
        expected,
        at=time.time(),
        seen=lambda _jti, _until: False,
        kind=GATEWAY,
    )
    assert receipt.upstream == hash_upstream_receipt(answer.headers["aiip-receipt"])
    assert receipt.policy == POLICY_HASH
    history = site.at("GET", "/.well-known/aiip.jwks.json?history")
    assert history.headers["content-type"] == "application/jwk-set+json"


@pytest.mark.requirement("ai-gateway-k", "ai-security-f")
def test_methods_mean_what_http_says(site: World) -> None:
    described = site.ask("GET", "/tool/add")
    assert described.json()["title"] == "Add two numbers"
    assert described.headers["content-type"] == "application/aiip+json"
    head = site.ask("HEAD", "/tool/add")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == described.headers["content-length"]
    assert head.headers["aiip-receipt"]
    options = site.ask("OPTIONS", "/tool/add")
    assert (options.status, options.headers["allow"]) == (204, "GET, HEAD, POST, OPTIONS")
    assert not [name for name in options.headers if name.startswith("access-control")]
    for method in ("PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"):
        refused = site.ask(method, "/tool/add")
        assert (refused.status, refused.json()["code"]) == (405, "method-not-allowed")
        assert refused.headers["allow"]


def test_the_query_goes_on_octet_by_octet(site: World) -> None:
    query = "?b=%2Fx%26y&a=1&c=%C3%A9"
    answer = site.ask("GET", "/tool/add" + query)
    keys = _claims(answer.headers["aiip-receipt"])
    asked = request_hash(
        method="GET",
        target=target(site, "/tool/add" + query),
        digest=None,
        content_type=None,
        idempotency_key=None,
    )
    assert keys["rqh"] == asked


def _claims(token: str) -> dict[str, object]:
    from base64 import urlsafe_b64decode

    part = token.split(".")[1]
    found: dict[str, object] = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def test_events_are_provisional_until_the_receipt(site: World) -> None:
    answer = site.ask("POST", "/tool/count", b'{"to":3}', Accept="text/event-stream")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["aiip-provisional"] == "?1"
    assert "aiip-receipt" not in answer.headers
    assert answer.body.startswith(b": provisional")
    events = SSEDecoder().feed(answer.body)
    assert [event.event for event in events] == ["message"] * 3 + ["receipt", "gateway-receipt"]
    assert [json.loads(event.data)["number"] for event in events[:3]] == [0, 1, 2]
    assert _claims(events[4].data)["up"] == hash_upstream_receipt(events[3].data)


def test_a_result_that_is_no_stream_is_none_although_one_was_asked_for(site: World) -> None:
    answer = site.ask("POST", "/tool/add", b'{"a":1,"b":2}', Accept="text/event-stream, */*")
    assert (answer.status, answer.json()["sum"]) == (200, 3)
    assert answer.headers["aiip-receipt"]


def test_the_endpoints_own_refusal_comes_with_its_receipt(site: World) -> None:
    answer = site.ask("POST", "/tool/add", b'{"a":"x"}')
    assert (answer.status, answer.json()["code"]) == (422, "invalid-input")
    assert _claims(answer.headers["aiip-receipt"])["res"]["st"] == 422  # type: ignore[index]
    failed = site.ask("POST", "/tool/fail", b"{}")
    assert failed.status == 500
    assert b"secret detail" not in failed.body


def test_an_unknown_resource_is_not_found(site: World) -> None:
    answer = site.ask("POST", "/no/such", b"{}")
    assert (answer.status, answer.json()["code"]) == (404, "endpoint-unknown")
    assert "received-status=404" in answer.headers["proxy-status"]


@pytest.mark.requirement("ai-gateway-g", "ai-gateway-i")
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/agent/forklift", "policy-denied"),
        ("/tool/write", "policy-denied"),
        ("/tool/secret", "authentication-required"),
    ],
)
def test_what_does_more_than_read_is_refused_before_it_is_asked(site: World, path: str, code: str) -> None:
    before = len(site.endpoint.seen)
    answer = site.ask("POST", path, b'{"to":"x","text":"x"}')
    assert (answer.status, answer.json()["code"]) == (403, code)
    assert answer.headers["proxy-status"].endswith(f'details="{code}"')
    assert "POST" not in [request["method"] for request in site.endpoint.seen[before:]]


@pytest.mark.requirement("ai-privacy-a", "ai-privacy-c")
def test_the_audit_log_says_what_was_decided_and_nothing_that_was_said(site: World) -> None:
    site.ask("POST", "/tool/add?secret=in-the-query", b'{"a":1,"b":2,"note":"in-the-body"}')
    site.ask("POST", "/agent/forklift", b'{"to":"in-the-body"}')
    site.ask("GET", "//evil")
    text = (site.folder / "audit.jsonl").read_text()
    for hidden in ("in-the-query", "in-the-body", "/tool/add", "127.0.0.1"):
        assert hidden not in text
    assert verify_log(site.folder / "audit.jsonl").is_valid
    lines = site.lines()
    permitted = next(line for line in reversed(lines) if line.get("decision") == "permit")
    assert {"jti", "rqh", "authority", "path", "status"} <= permitted.keys()
    refused = next(line for line in reversed(lines) if line.get("code") == "aiip.policy-denied")
    assert refused["decision"] == "refuse"


def test_a_digest_and_a_key_of_the_caller_must_be_right(site: World) -> None:
    from onym.sign.receipts import content_digest

    body = b'{"a":1,"b":2}'
    good = content_digest(body)
    assert site.ask("POST", "/tool/add", body, Content_Digest=good, Idempotency_Key='"k1"').status == 200
    for headers in (
        {"Content_Digest": content_digest(b"other")},
        {"Content_Digest": f"sha-512=:{'A' * 86}==:"},
        {"Idempotency_Key": "bare"},
        {"Idempotency_Key": '""'},
        {"AIIP_Nonce": "short"},
        {"Accept_Language": "\xe9"},
    ):
        answer = site.ask("POST", "/tool/add", body, **headers)
        assert (answer.status, answer.json()["code"]) == (400, "bad-request"), headers
    untyped = site.ask("POST", "/tool/add", body, Content_Type="")
    assert untyped.status in {400, 415}


def test_addresses_that_are_none(site: World) -> None:
    for path in (
        "/nothing",
        "/static/nothing",
        "/results/x",
        "/results/x/body",
        "/problems/none",
        "/gateway",
    ):
        assert site.at("GET", path).status == 404, path
    assert site.at("GET", "/problems/too-large").body.startswith(CODES["too-large"].title.encode())
    assert site.at("GET", "/static/onym.css").headers["cache-control"].startswith("public")
    assert site.at("POST", "/", b"").status == 404
