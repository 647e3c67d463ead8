"""What an endpoint refuses to be made of, its life, and who is asked for a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onym.ai.endpoint import Call, Caller, Endpoint, Limits
from onym.ai.endpoint.context import AccessRequest
from onym.ai.endpoint.functions import FunctionHandler
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.errors import AIIPError, ConfigError, DiscoveryError, UsageError
from onym.net.messages import Headers
from onym.sign.keys import SigningKey

Serving = Callable[..., Any]
KEY = SigningKey.generate("Ed25519").with_thumbprint()


def made(authority: str = "a.example", **options: Any) -> Endpoint:
    return Endpoint(authority, **{"keys": KEY, **options})


@pytest.mark.parametrize(
    "authority", ["A.example", "a.example:443", "a b", "", "user@a.example", "a.example/x", "127.0.0.1"]
)
def test_an_authority_has_one_spelling(authority: str) -> None:
    with pytest.raises(UsageError):
        made(authority)


@pytest.mark.parametrize(
    "anchor",
    ["http://a.example", "https://a.example/", "https://u@a.example", "a.example", "https://a.example:443"],
)
def test_an_anchor_is_an_https_origin(anchor: str) -> None:
    with pytest.raises(UsageError):
        made(anchor=anchor)


def test_a_registry_name_needs_its_anchor() -> None:
    with pytest.raises(UsageError) as refusal:
        made("factory")
    assert refusal.value.code == "usage.bad-argument"
    assert made("factory", anchor="https://ai.example").anchor == "https://ai.example"
    assert made("a.example:8443").anchor == "https://a.example:8443"


@pytest.mark.parametrize("path", ["x", "/x/", "//x", "/x?q=1", "/x#f", "/%78", "/a/../b", "/X%2F"])
def test_a_path_has_one_spelling(path: str) -> None:
    from onym.errors import URIError

    with pytest.raises((UsageError, URIError)):
        made().resource(path)(lambda: None)


def test_a_decorator_without_parentheses_is_refused() -> None:
    def typed(a: int) -> int:
        return a

    app = made()
    for wrong in (typed, None, b"/x"):
        with pytest.raises(UsageError) as caught:
            app.resource(wrong)  # type: ignore[arg-type]
        assert "@app.resource(" in str(caught.value.hint)
    with pytest.raises(UsageError) as caught:
        app.resource("x")
    assert caught.value.hint == "Write /x."
    assert app.resources == ()


def test_a_name_is_served_once() -> None:
    app = made()

    def one() -> int:
        return 1

    app.resource("/x")(one)
    with pytest.raises(UsageError) as refusal:
        app.resource("/x")(lambda: 2)
    assert refusal.value.code == "usage.bad-argument"
    assert one() == 1
    (resource,) = app.resources
    assert resource.handler.describe() == FunctionHandler(one).describe()


def test_an_anchor_document_that_nobody_could_read_is_not_made() -> None:
    app = made()

    def one() -> int:
        return 1

    with pytest.raises(UsageError) as refusal:
        app.resource("/x", scopes=["has space"])(one)
    assert isinstance(refusal.value.__cause__, DiscoveryError)
    assert refusal.value.__cause__.code == "aiip.discovery-conflict"
    assert app.resources == ()
    app.resource("/x", scopes=["has_no_space"])(one)


def test_only_writes_are_reversible_and_both_documents_tell_which(tmp_path: Path) -> None:
    app = made(store=tmp_path / "keys.sqlite")

    def one() -> int:
        return 1

    app.resource("/draft", effects="write", reversible=True)(one)
    app.resource("/sent", effects="write")(one)
    for effects in ("read", "financial", "physical"):
        with pytest.raises(UsageError) as refusal:
            app.resource("/x", effects=effects, reversible=True)(one)
        assert refusal.value.code == "usage.bad-argument"
    assert [resource.entry.reversible for resource in app.resources] == [True, False]
    described = [msgspec.json.decode(resource.encode_description()) for resource in app.resources]
    assert [row.get("reversible") for row in described] == [True, None]


@pytest.mark.parametrize("effects", ["write", "financial", "physical"])
def test_effects_need_a_store_of_keys(effects: str, tmp_path: Path) -> None:
    def one() -> int:
        return 1

    with pytest.raises(UsageError):
        made().resource("/x", effects=effects)(one)
    stored = made(store=tmp_path / "k")
    for effect, idempotency in ((effects, False), ("magic", True)):
        with pytest.raises(UsageError):
            stored.resource("/x", effects=effect, idempotency=idempotency)(one)
    assert stored.resources == ()
    stored.resource("/x", effects=effects)(one)
    assert [resource.idempotency for resource in stored.resources] == [True]


def test_a_limit_is_above_zero() -> None:
    with pytest.raises(UsageError):
        Limits(body=0)


def untyped(a) -> int:  # type: ignore[no-untyped-def]
    return 1


def starred(*a: int) -> int:
    return 1


def positional(a: int, /) -> int:
    return 1


def strange(a: Callable[[], int]) -> int:
    return 1


def unknown(a: Nowhere) -> int:  # type: ignore[name-defined]  # noqa: F821
    return 1


def clash(a: dict[int, str] | dict[str, int]) -> int:
    return 1


class Purse(msgspec.Struct):
    cents: int


def shared(a: Purse = Purse(cents=1)) -> int:  # noqa: B008 - what is refused
    return 1


@pytest.mark.parametrize("function", [untyped, starred, positional, unknown, clash, shared])
def test_a_function_without_a_json_form_is_no_resource(function: Callable[..., Any]) -> None:
    with pytest.raises(UsageError) as refusal:
        FunctionHandler(function)
    assert (refusal.value.code, function.__name__ in refusal.value.message) == ("usage.bad-argument", True)


def test_defaults_are_not_shared_between_calls() -> None:
    def grow(values: list[int] = [], names: dict[str, int] = {}) -> list[int]:  # noqa: B006
        values.append(1)
        return values

    handler = FunctionHandler(grow)
    given = [handler._decode_arguments(_call()) for _ in range(2)]
    assert given[0]["values"] == given[1]["values"] == []
    assert given[0]["values"] is not given[1]["values"]


def test_types_without_a_schema_are_left_out_of_the_description() -> None:
    def anything(a: Any) -> bytes:
        return b""

    def bare() -> Iterator:  # type: ignore[type-arg]
        yield 1

    assert "output" not in FunctionHandler(anything).describe()
    assert "output" not in FunctionHandler(bare).describe()


def _call() -> Call:
    from onym.uri.ai import AIURI

    return Call(
        uri=AIURI.parse("ai://a.example/x"),
        caller=Caller(audience="anonymous"),
        headers=Headers(),
        request_hash="x",
    )


def lifespan(app: Endpoint) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def main() -> None:
        messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            sent.append(message)

        await app({"type": "lifespan"}, receive, send)
        await app({"type": "websocket"}, receive, send)

    asyncio.run(main())
    return sent


def test_an_endpoint_starts_and_ends(tmp_path: Path) -> None:
    app = made(store=tmp_path / "k.sqlite")
    assert [each["type"] for each in lifespan(app)] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert list(tmp_path.glob("*.lock")) == []


@pytest.mark.parametrize("options", [{"keys": None}, {"keys": "none"}, {"store": "/nowhere/k.sqlite"}])
def test_an_endpoint_that_could_not_answer_does_not_start(options: dict[str, Any]) -> None:
    (failed,) = lifespan(made(**options))
    assert failed["type"] == "lifespan.startup.failed"
    with pytest.raises(ConfigError):
        made(**options).check()


class Tokens:
    """Knows two tokens: "Bearer good" is ann's at the shop, "Bearer poor" is hers and reaches nowhere."""

    def metadata(self) -> Mapping[str, Any]:
        return {}

    async def authorize(self, request: AccessRequest) -> Caller:
        known = Caller(audience="shop", client_id="shop", subject="ann", token_hash="A" * 43)
        token = request.headers.get("authorization")
        if token == "Bearer good":
            return known
        code = "insufficient-scope" if token == "Bearer poor" else "authentication-required"
        error: Any = AIIPError("no", code=f"aiip.{code}")
        error.challenge = f'Bearer scope="{" ".join(sorted(request.scopes))}"'
        if token == "Bearer poor":
            error.caller = known
        raise error


def claims(heard: Any) -> dict[str, Any]:
    import json
    from base64 import urlsafe_b64decode

    payload = str(heard.receipt).split(".")[1]
    return dict(json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))


def guarded(app: Endpoint) -> None:
    @app.resource("/own", scopes=["mine"])
    async def own(call: Call) -> str:
        return f"{call.caller.client_id} {call.caller.subject}"


def test_who_shows_a_token_is_known_by_it(serving: Serving) -> None:
    with serving(guarded, authorization=Tokens()) as (_, line):
        heard = line.ask("POST", "/own", b"", ("Authorization", "Bearer good"))
        assert heard.body == b"shop ann"
        assert (claims(heard)["aud"], claims(heard)["ath"]) == ("shop", "A" * 43)
        described = line.ask("GET", "/own", b"", ("Authorization", "Bearer good"))
        assert claims(described)["aud"] == "shop"
        assert claims(line.ask("GET", "/own"))["aud"] == "anonymous"
        assert line.ask("GET", "/.well-known/aiip", service=False).json()["policy"]["auth"] == "oauth2"


def test_who_shows_none_is_refused_with_a_challenge(serving: Serving) -> None:
    with serving(guarded, authorization=Tokens()) as (_, line):
        heard = line.ask("POST", "/own")
        assert (heard.status, heard.json()["code"]) == (401, "authentication-required")
        assert heard.get("www-authenticate") == 'Bearer scope="mine"'
        assert heard.receipt is None
        # nobody learns without a token which resources there are
        assert line.ask("POST", "/none").status == 401


def test_a_token_that_does_not_reach_is_refused_signed(serving: Serving) -> None:
    with serving(guarded, authorization=Tokens()) as (_, line):
        heard = line.ask("POST", "/own", b"", ("Authorization", "Bearer poor"))
        assert (heard.status, heard.json()["code"]) == (403, "insufficient-scope")
        assert claims(heard)["aud"] == "shop"


@pytest.mark.parametrize("path", ["", "/", "/.well-known/aiip/v1", "/.well-known/aiip/v1/"])
def test_the_metadata_of_the_protected_resource_is_where_its_challenge_says(
    serving: Serving, path: str
) -> None:
    resource = f"https://factory.test{path}"
    tokens = JWTAuthorization("https://login.example", resource)
    with serving(guarded, authorization=tokens, anchor="https://factory.test") as (_, line):
        # RFC 9728 3.1: inserted before the path, which stays as it is
        at = tokens.metadata_url.removeprefix("https://factory.test")
        assert at == "/.well-known/oauth-protected-resource" + ("" if path == "/" else path)
        head = f"GET {at} HTTP/1.1\r\nHost: factory.test\r\n\r\n".encode()
        assert line.say(head, "GET").json()["resource"] == resource


def test_an_idle_stream_type_is_told() -> None:
    async def events() -> AsyncIterator[int]:
        yield 1

    assert FunctionHandler(events).describe()["output"] == {"type": "integer"}
