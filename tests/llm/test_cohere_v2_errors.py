"""Failures of the Cohere dialect: a text and an id, so the status alone tells them apart."""

from __future__ import annotations

from typing import Any

import pytest

from json_support import octets, reads, visible
from onym.errors import (
    AuthenticationError,
    BadRequestError,
    ContentFilterError,
    MalformedResponseError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    RateLimitError,
    ServerError,
)
from onym.llm.dialects import Exchange, cohere_v2
from onym.net.messages import Headers
from onym.uri.secret import Secret
from support import as_subtests

KEY = "abcdefghijklmnopqrstuvwxyz0123456789ABCD"
AT = Exchange(endpoint="llm://api.cohere.com/command-a", secrets=(Secret(KEY),), now=1_700_000_000.0)
SAID = {"id": "8c5f", "message": "said"}


def error(status: int, body: Any = None, headers: Any = ()) -> ProviderError:
    return cohere_v2.decode_error(status, Headers(headers), octets(body), AT)


CASES: dict[str, tuple[int, Any, type[ProviderError]]] = {
    "bad request": (400, SAID, BadRequestError),
    "wrong key": (401, {"message": "invalid api token"}, AuthenticationError),
    "billing": (402, SAID, QuotaError),
    "forbidden": (403, SAID, PermissionDeniedError),
    "no model": (404, {"id": "x", "message": "model 'm' not found"}, NotFoundError),
    "unprocessable": (422, SAID, BadRequestError),
    "rate": (429, SAID, RateLimitError),
    "deny-listed token": (498, SAID, ContentFilterError),
    "cancelled": (499, SAID, ServerError),
    "server": (500, SAID, ServerError),
    "not implemented": (501, SAID, BadRequestError),
    "overloaded": (503, SAID, OverloadedError),
    "gateway timeout": (504, SAID, ServerError),
    "a gateway's record": (429, {"error": {"message": "said", "code": "x"}}, RateLimitError),
    "a gateway's text": (429, {"error": "said"}, RateLimitError),
    "a gateway's detail": (404, {"detail": "said"}, NotFoundError),
    "no body": (400, b"", BadRequestError),
    "a page": (502, b"<html>", ServerError),
    "a list": (400, [1], BadRequestError),
    "null": (400, None, BadRequestError),
    "a number": (400, {"message": 5}, BadRequestError),
    "a status that nobody uses": (777, {}, MalformedResponseError),
}


@as_subtests(("status", "body", "kind"), CASES.values(), ids=CASES.keys())
def test_a_failure_is_told_by_its_status(status: int, body: Any, kind: type[ProviderError]) -> None:
    found = error(status, body)
    assert type(found) is kind
    assert (found.status, found.endpoint) == (status, AT.endpoint)
    assert f"HTTP {status}" in found.message
    assert ("said" in found.message) is ("said" in str(body))


@pytest.mark.parametrize("text", ["too many tokens: 9 > 8", "invalid api token", "rate limit", "safety"])
def test_what_a_message_says_in_prose_decides_nothing(text: str) -> None:
    assert type(error(400, {"message": text})) is BadRequestError


def test_retry_after_and_request_id_come_from_the_headers() -> None:
    found = error(429, SAID, [("Retry-After", "7"), ("x-request-id", "r-1")])
    assert (found.retry_after, found.request_id) == (7.0, "r-1")


@pytest.mark.requirement("onym-secret-a", "llm-10.1-b")
def test_a_key_that_the_server_echoes_is_not_in_the_error() -> None:
    found = error(401, {"message": f"no such key {KEY}", "id": KEY}, [("x-request-id", KEY)])
    assert KEY not in visible(found)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"message": "said", "id": "x"}, ServerError),
        ({"error": {"message": "said", "code": 429}}, RateLimitError),
        ({"message": "said", "status_code": 429}, RateLimitError),
        ({"error": "said"}, ServerError),
    ],
)
def test_inside_a_success_the_body_alone_says_what_failed(body: Any, kind: type[ProviderError]) -> None:
    for read in reads(cohere_v2, octets(body)):
        with pytest.raises(ProviderError, match="said") as caught:
            read()
        assert type(caught.value) is kind
