"""Errors as a gateway tells them: status, code, words, Proxy-Status (3.7; prov-120, prov-121)."""

from __future__ import annotations

from typing import Any

import pytest

from onym import errors
from onym.ai.gateway.forwarding import build_refusal_document, format_proxy_status, make_refusal
from onym.ai.messages import CODES
from support import as_subtests


def invocation(status: int, **problem: Any) -> errors.InvocationError:
    error = errors.InvocationError("it refused", status=status, target="ai://a.example/x")
    error.problem = problem
    return error


CASES: list[tuple[errors.OnymError, int, str]] = [
    (errors.AIURIError("x", code="ai.userinfo"), 400, "malformed-uri"),
    (errors.AIURIError("x", code="ai.outside-prefix"), 400, "malformed-uri"),
    (errors.URISyntaxError("x"), 400, "malformed-uri"),
    (errors.AIURIError("x", code="ai.non-canonical", hint="ai://a.example/"), 400, "non-canonical-uri"),
    (errors.DiscoveryError("x"), 404, "unknown-authority"),
    (errors.DiscoveryError("x", code="aiip.discovery-conflict"), 502, "discovery-conflict"),
    (errors.DiscoveryError("x", code="aiip.downgrade-detected"), 502, "downgrade-detected"),
    (errors.DiscoveryError("x", code="aiip.unconfirmed-origin"), 403, "unconfirmed-origin"),
    (errors.ProvenanceError("x"), 502, "provenance-invalid"),
    (errors.SignatureError("x"), 502, "provenance-invalid"),
    (errors.DeniedError("x"), 403, "policy-denied"),
    (errors.DeniedError("x", code="aiip.approval-required"), 403, "approval-required"),
    (errors.DeniedError("x", code="aiip.authentication-required"), 403, "authentication-required"),
    (errors.DeniedError("x", code="aiip.sender-constraint"), 403, "sender-constraint"),
    (errors.AuthorizationError("x"), 403, "authorization-unavailable"),
    (errors.AuthorizationError("x", status=503, retryable=True), 503, "authorization-unavailable"),
    (errors.DeadlineExceeded("x"), 504, "upstream-timeout"),
    (errors.PolicyError("x", reason="private"), 502, "blocked-address"),
    (errors.ResolveError("x"), 502, "upstream-unreachable"),
    (errors.ConnectionFailed("x"), 502, "upstream-unreachable"),
    (errors.TLSError("x"), 502, "upstream-unreachable"),
    (errors.ProtocolError("x"), 502, "upstream-unreachable"),
    (errors.ResponseTooLarge("x"), 502, "too-large"),
    (errors.RedirectRefused("x"), 502, "upstream-redirect"),
    (errors.AIIPError("x", code="aiip.upstream-redirect"), 502, "upstream-redirect"),
    (errors.AIIPError("x", code="aiip.too-large"), 413, "too-large"),
    (errors.AIIPError("x", code="aiip.never-heard-of"), 500, "internal"),
    (errors.UsageError("x"), 500, "internal"),
    (errors.StoreError("x"), 503, "unavailable"),
    (errors.CredentialError("x"), 503, "unavailable"),
    (errors.ConfigError("x"), 500, "internal"),
    (errors.OnymError("x"), 500, "internal"),
    (invocation(401, code="authentication-required"), 403, "authentication-required"),
    (invocation(403), 403, "policy-denied"),
    (invocation(422, code="invalid-input"), 422, "invalid-input"),
    (invocation(404, code="endpoint-unknown"), 404, "endpoint-unknown"),
    (invocation(429, code="too-many-requests"), 429, "too-many-requests"),
    (invocation(501, code="receipt-unavailable"), 501, "receipt-unavailable"),
    (invocation(500, code="internal"), 502, "internal"),
    (invocation(418), 502, "invocation-failed"),
    (invocation(407), 502, "invocation-failed"),
    (errors.InvocationError("x"), 502, "invocation-failed"),
]


@pytest.mark.requirement("ai-gateway-k")
@as_subtests(("error", "status", "code"), CASES, ids=lambda each: str(each)[:40])
def test_each_error_has_its_status_and_code(error: errors.OnymError, status: int, code: str) -> None:
    found = make_refusal(error)
    assert (found.status, found.code) == (status, code)
    assert format_proxy_status(found, "gw.example").startswith('"gw.example"; ')


@pytest.mark.parametrize(("status", "again"), [(503, True), (503, False), (403, False), (None, False)])
def test_a_refusal_of_an_authorization_server_is_told_from_a_server_that_failed(
    status: int | None, again: bool
) -> None:
    found = make_refusal(errors.AuthorizationError("x", status=status, retryable=again))
    assert (found.status, found.retryable) == (status or 403, again)


@as_subtests("code", CODES)
def test_every_code_of_the_binding_can_be_told(code: str) -> None:
    found = make_refusal(errors.AIIPError("x", code=f"aiip.{code}"))
    assert found.cause == f"aiip.{code}"
    assert 400 <= found.status < 600
    # the others would promise a way to sign in that there is not
    assert (found.status == 401) == (code == "sign-in-required")


def test_no_answer_tells_which_check_of_a_receipt_failed() -> None:
    told = {
        str(build_refusal_document(make_refusal(error), base_url="https://gw.example", request_id="r"))
        for error in (
            errors.ProvenanceError("unknown kid abc", clause="3.8 step 4"),
            errors.ProvenanceError("bad signature", hint="key k1"),
            errors.ProvenanceError("expired", code="aiip.provenance-stale"),
            errors.ProvenanceError("none", code="aiip.provenance-missing"),
            errors.SignatureError("token eyJ0 is wrong", code="sign.unknown-key"),
        )
    }
    assert len(told) == 1
    assert "eyJ0" not in told.pop()


def test_no_answer_tells_an_address() -> None:
    error = errors.PolicyError("10.0.0.1 is private", reason="private", endpoint="https://x", hint="10.0.0.1")
    assert "10.0.0.1" not in str(make_refusal(error).detail) + str(make_refusal(error).hint)


def test_the_canonical_form_is_told() -> None:
    found = make_refusal(errors.AIURIError("x", code="ai.non-canonical", hint="ai://a.example/"))
    told = build_refusal_document(found, base_url="https://gw.example", request_id="r", trace="t")
    assert (told["canonical"], told["trace"]) == ("ai://a.example/", "t")
    assert told["type"] == "https://gw.example/problems/non-canonical-uri"
    assert "hint" not in told


#: the classes whose words are about the caller's request or the authority's answer; all others' are ours
_TELL = {
    errors.URIError,
    errors.URISyntaxError,
    errors.URILimitError,
    errors.LLMURIError,
    errors.ParameterError,
    errors.AIURIError,
    errors.DiscoveryError,
    errors.ApprovalRequired,
    errors.DeniedError,
    errors.AuthorizationError,
    errors.ConnectionRequired,
    errors.InvocationError,
    errors.TaskCancelled,
}
_EVERY = sorted(
    {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.OnymError)},
    key=lambda each: each.__name__,
)
_OURS = "/srv/onym/private"


def told(kind: type[errors.OnymError], code: str | None = None) -> str:
    more: dict[str, Any] = {"code": code}
    if issubclass(kind, errors.PolicyError):
        more = {"reason": "private"}
    error = kind(f"{_OURS} is broken", hint=f"mend {_OURS}", **more)
    for name in ("clause", "endpoint", "source", "command", "field"):
        if hasattr(error, name):
            setattr(error, name, _OURS)
    found = make_refusal(error)
    return str(
        build_refusal_document(found, base_url="https://gw.example", request_id="r")
    ) + format_proxy_status(found, "gw")


@as_subtests("kind", _EVERY, ids=lambda each: each.__name__)
def test_only_words_about_the_request_or_the_authority_reach_a_caller(kind: type[errors.OnymError]) -> None:
    assert (_OURS in told(kind)) is (kind in _TELL)


@pytest.mark.parametrize("code", ["aiip.unavailable", "aiip.internal"])
@pytest.mark.parametrize("kind", [errors.AIIPError, errors.DiscoveryError, errors.ProvenanceError])
def test_what_the_gateway_itself_cannot_do_is_told_without_its_reason(
    kind: type[errors.AIIPError], code: str
) -> None:
    assert _OURS not in told(kind, code)


@pytest.mark.parametrize("kind", [errors.DiscoveryError, errors.ProvenanceError])
def test_a_file_that_is_busy_is_not_told_of_either(kind: type[errors.AIIPError]) -> None:
    found = make_refusal(kind(f"{_OURS} is busy", code="aiip.unavailable", hint=_OURS, retryable=True))
    assert _OURS not in str(found)


def test_a_long_detail_of_an_endpoint_is_cut() -> None:
    assert len(make_refusal(invocation(422, code="invalid-input", detail="x" * 10_000)).detail) == 500


def test_proxy_status_tells_who_failed() -> None:
    def field(error: errors.OnymError) -> str:
        return format_proxy_status(make_refusal(error), "gw.example")

    assert field(invocation(422)) == '"gw.example"; received-status=422'
    assert "error=connection_timeout" in field(errors.DeadlineExceeded("x"))
    assert "error=destination_ip_prohibited" in field(errors.PolicyError("x", reason="private"))
    assert "error=http_request_denied" in field(errors.DeniedError("x"))
    assert "error=http_request_error" in field(errors.AIURIError("x"))
