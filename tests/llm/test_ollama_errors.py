"""Failures of Ollama's dialect: a text, so the status alone tells them apart."""

from __future__ import annotations

from typing import Any

import pytest

from json_support import octets, reads, visible
from onym.errors import (
    AuthenticationError,
    BadRequestError,
    MalformedResponseError,
    NotFoundError,
    OverloadedError,
    ProviderError,
    QuotaError,
    RateLimitError,
    ServerError,
)
from onym.llm.dialects import Exchange, ollama
from onym.net.messages import Headers
from onym.uri.secret import Secret
from support import as_subtests

KEY = "abcdefghijklmnopqrstuvwxyz012345"
AT = Exchange(endpoint="llm://localhost:11434/llama3", secrets=(Secret(KEY),), now=1_700_000_000.0)
SAID = {"error": "said"}


def error(status: int, body: Any = None, headers: Any = ()) -> ProviderError:
    return ollama.decode_error(status, Headers(headers), octets(body), AT)


CASES: dict[str, tuple[int, Any, type[ProviderError]]] = {
    "bad request": (400, SAID, BadRequestError),
    "no key": (401, {"error": "said", "signin_url": "https://ollama.com/connect?key=x"}, AuthenticationError),
    "no credit": (402, SAID, QuotaError),
    "no model": (404, {"error": "model 'm' not found"}, NotFoundError),
    "too large": (413, SAID, BadRequestError),
    "rate": (429, SAID, RateLimitError),
    "server": (500, SAID, ServerError),
    "cloud out of reach": (502, SAID, ServerError),
    "busy": (503, SAID, OverloadedError),
    "a gateway's record": (429, {"error": {"message": "said", "code": "x"}}, RateLimitError),
    "a gateway's record without text": (429, {"error": {"message": 5}}, RateLimitError),
    "no route": (404, b"404 page not found", NotFoundError),
    "no body": (400, b"", BadRequestError),
    "a list": (400, [1], BadRequestError),
    "a number": (400, {"error": 5}, BadRequestError),
    "a status that nobody uses": (777, {}, MalformedResponseError),
}


@as_subtests(("status", "body", "kind"), CASES.values(), ids=CASES.keys())
def test_a_failure_is_told_by_its_status(status: int, body: Any, kind: type[ProviderError]) -> None:
    found = error(status, body)
    assert type(found) is kind
    assert (found.status, found.endpoint) == (status, AT.endpoint)
    assert f"HTTP {status}" in found.message
    assert ("said" in found.message) is ("said" in str(body))


@pytest.mark.parametrize("text", ["model not found", "exceeds the context length", "unauthorized"])
def test_what_a_message_says_in_prose_decides_nothing(text: str) -> None:
    assert type(error(400, {"error": text})) is BadRequestError


@pytest.mark.requirement("onym-secret-a", "llm-10.1-b")
def test_a_key_that_the_server_echoes_is_not_in_the_error() -> None:
    found = error(401, {"error": f"no such key {KEY}"}, [("x-request-id", KEY)])
    assert KEY not in visible(found)


@pytest.mark.parametrize(
    ("body", "kind"), [(SAID, ServerError), ({"error": {"message": "said", "code": 429}}, RateLimitError)]
)
def test_inside_a_success_the_body_alone_says_what_failed(body: Any, kind: type[ProviderError]) -> None:
    for read in reads(ollama, octets(body)):
        with pytest.raises(ProviderError, match="said") as caught:
            read()
        assert type(caught.value) is kind
