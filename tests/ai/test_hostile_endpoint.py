"""Whoever stands between client and endpoint, or is the endpoint: each attack against running servers.

The endpoint is real; what it answers is changed on its way out, as an attacker would.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ai_factory import resources
from ai_support import ai_policy, authority_ca, key_store, names_resolver, serve_authority, trust
from onym.ai import AIClient, ResolverSettings
from onym.ai.endpoint import Endpoint
from onym.errors import AIIPError, ProvenanceError, SignatureError
from onym.net.config import NetConfig
from onym.net.transport import Transport
from onym.sign.keys import SigningKey
from support import holds_a_token

Fields = list[tuple[str, str]]
#: status, header fields and body of an answer, changed
Change = Callable[[int, Fields, bytes], tuple[int, Fields, bytes]]


class Tampered:
    """An endpoint whose answers are changed: those of the service, the anchor document, the key set."""

    def __init__(self, app: Endpoint) -> None:
        self.app = app
        self.changes: dict[str, Change] = {}
        self.paths: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["raw_path"].decode()
        self.paths.append(path)
        change = next((each for end, each in self.changes.items() if end in path), None)
        if change is None:
            await self.app(scope, receive, send)
            return
        start: dict[str, Any] = {}
        body = bytearray()

        async def keep(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                body.extend(message.get("body", b""))

        await self.app(scope, receive, keep)
        given = [(name.decode().lower(), value.decode()) for name, value in start["headers"]]
        status, fields, octets = change(start["status"], given, bytes(body))
        fields = [each for each in fields if each[0] not in {"content-length", "transfer-encoding"}]
        fields.append(("content-length", str(len(octets))))
        start |= {"status": status, "headers": [(n.encode(), v.encode()) for n, v in fields]}
        await send(start)
        await send({"type": "http.response.body", "body": octets})


@dataclass
class Scene:
    """The tampered endpoint, its key, and a stranger's."""

    tampered: Tampered
    authority: str
    keys: Any
    trust: Any
    stranger: SigningKey = field(default_factory=lambda: SigningKey.generate("ES256").with_thumbprint())

    def uri(self, path: str) -> str:
        return f"ai://{self.authority}{path}"

    def invoke(self, path: str = "/tool/add?a=1&b=2", times: int = 1) -> Any:
        """A new client's last result."""
        policy = ai_policy([int(self.authority.partition(":")[2])])
        with (
            Transport(
                NetConfig(
                    policy=policy, resolver=names_resolver({"factory.test": "127.0.0.1"}), tls=self.trust
                )
            ) as wire,
            AIClient(ResolverSettings(dns=False), transport=wire) as client,
        ):
            for _ in range(times):
                result = client.invoke(self.uri(path))
        return result


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("hostile")
    keys, ca = key_store(folder, algorithm="ES256"), authority_ca()

    def make(authority: str) -> Tampered:
        app = Endpoint(authority, keys=keys, store=folder / "seen.sqlite")
        resources(app, [])
        return Tampered(app)

    with serve_authority(make, "factory.test", ca=ca) as (tampered, authority):
        yield Scene(tampered, authority, keys, trust(ca, Path(folder)))


@pytest.fixture
def scene(served: Scene) -> Iterator[Scene]:
    yield served
    served.tampered.changes.clear()
    served.tampered.paths.clear()


def b64(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    head, payload, signature = token.split(".")
    read = [json.loads(base64.urlsafe_b64decode(each + "==")) for each in (head, payload)]
    return read[0], read[1], signature


def compact(header: Any, claims: Any, signature: str) -> str:
    head, body = (
        b64(each if isinstance(each, bytes) else json.dumps(each).encode()) for each in (header, claims)
    )
    return f"{head}.{body}.{signature}"


def signed(header: dict[str, Any], claims: dict[str, Any], key: Any) -> str:
    unsigned = compact(header, claims, "").rpartition(".")[0]
    return f"{unsigned}.{b64(key.sign(unsigned.encode()))}"


def receipt(fields: Fields) -> str:
    return dict(fields)["aiip-receipt"]


def with_receipt(fields: Fields, *tokens: str) -> Fields:
    return [each for each in fields if each[0] != "aiip-receipt"] + [
        ("aiip-receipt", each) for each in tokens
    ]


Forge = Callable[[str, Scene], str]


def _none(name: str, keep: bool = False) -> Forge:
    def forge(token: str, scene: Scene) -> str:
        header, claims, signature = parts(token)
        return compact(header | {"alg": name}, claims, signature if keep else "")

    return forge


def _hmac(secret: Callable[[Any], bytes]) -> Forge:
    def forge(token: str, scene: Scene) -> str:
        header, claims, _ = parts(token)
        public = scene.keys.signer(time.time()).public()
        unsigned = compact(header | {"alg": "HS256"}, claims, "").rpartition(".")[0]
        return f"{unsigned}.{b64(hmac.new(secret(public), unsigned.encode(), hashlib.sha256).digest())}"

    return forge


def _header(resigned: bool = False, **members: Any) -> Forge:
    def forge(token: str, scene: Scene) -> str:
        header, claims, signature = parts(token)
        if resigned:
            return signed(header | members, claims, scene.keys.signer(time.time()))
        return compact(header | members, claims, signature)

    return forge


def _stranger(**members: Any) -> Forge:
    def forge(token: str, scene: Scene) -> str:
        header, claims, _ = parts(token)
        public = scene.stranger.public()
        return signed(header | {"jwk": public} | members, claims, scene.stranger)

    return forge


def _claims(**changed: Any) -> Forge:
    """The endpoint itself signs other claims: a bug, or a thief of its key."""

    def forge(token: str, scene: Scene) -> str:
        header, claims, _ = parts(token)
        merged = {name: value for name, value in (claims | changed).items() if value is not ...}
        return signed(header, merged, scene.keys.signer(time.time()))

    return forge


def _doubled(token: str, scene: Scene) -> str:
    header, claims, _ = parts(token)
    head = json.dumps(header)[:-1] + ',"alg":"ES256"}'
    unsigned = compact(head.encode(), claims, "").rpartition(".")[0]
    return f"{unsigned}.{b64(scene.keys.signer(time.time()).sign(unsigned.encode()))}"


def _shifted(**seconds: float) -> Forge:
    def forge(token: str, scene: Scene) -> str:
        header, claims, _ = parts(token)
        moved = {name: claims[name] + by for name, by in seconds.items()}
        return signed(header, claims | moved, scene.keys.signer(time.time()))

    return forge


def _zeros(token: str, scene: Scene) -> str:
    header, claims, _ = parts(token)
    return compact(header, claims, b64(bytes(64)))


#: what is done to the receipt; numbers are those of the attacks in aiip 3.15
FORGED: dict[str, Forge] = {
    "1 alg none": _none("none"),
    "1 alg NONE": _none("NONE"),
    "1 alg none, signature kept": _none("none", keep=True),
    "2 HS256 with the public key's JSON": _hmac(lambda public: json.dumps(public).encode()),
    "2 HS256 with the public key's x": _hmac(lambda public: public["x"].encode()),
    "2 HS256 with nothing": _hmac(lambda public: b""),
    "3 jwk in the header": _stranger(),
    "3 jku": _stranger(jku="https://evil.example/jwks.json"),
    "3 x5u": _header(resigned=True, x5u="https://evil.example/cert.pem"),
    "3 x5c": _header(resigned=True, x5c=["MIIB"]),
    "4 key of a stranger": lambda token, scene: signed(
        {**parts(token)[0], "kid": scene.stranger.kid}, parts(token)[1], scene.stranger
    ),
    "4 key of a stranger under our kid": lambda token, scene: signed(
        parts(token)[0], parts(token)[1], scene.stranger
    ),
    "5 access token": _header(resigned=True, typ="at+jwt"),
    "5 DPoP proof": _header(resigned=True, typ="dpop+jwt"),
    "5 ID token": _header(resigned=True, typ="JWT"),
    "5 gateway receipt": _header(resigned=True, typ="aiip-gateway+jwt"),
    "6 crit": _header(resigned=True, crit=["exp"], exp=1),
    "6 b64": _header(resigned=True, b64=False),
    "6 zip": _header(resigned=True, zip="DEF"),
    "6 doubled member": _doubled,
    "6 padding": lambda token, scene: token + "=",
    "6 white space": lambda token, scene: token.replace(".", ". ", 1),
    "6 five parts": lambda token, scene: token + ".a.b",
    "6 kid is no text": _header(resigned=True, kid=["a"]),
    "7 nonce": _claims(nonce="A" * 32),
    "7 no nonce": _claims(nonce=...),
    "7 audience": _claims(aud="somebody"),
    "7 audiences": _claims(aud=["somebody", "anonymous"]),
    "7 request": _claims(rqh="A" * 43),
    "7 no jti": _claims(jti=...),
    "7 no exp": _claims(exp=...),
    "7 no iat": _claims(iat=...),
    "7 a life of ten years": _shifted(exp=315_360_000),
    "7 another anchor": _claims(iss="https://evil.test"),
    "7 an anchor spelt otherwise": lambda token, scene: _claims(
        iss=parts(token)[1]["iss"].replace("factory", "FACTORY")
    )(token, scene),
    "7 another resource": lambda token, scene: _claims(sub=scene.uri("/tool/other"))(token, scene),
    "7 exp is a text": _claims(exp="9999999999"),
    "40 from the future": _shifted(iat=120, exp=120),
    "40 expired": _shifted(iat=-200, exp=-200),
    "psychic signature": _zeros,
    "nothing in it": lambda token, scene: "",
    "10 KB": lambda token, scene: token + "A" * 10_000,
}


@pytest.mark.requirement("ai-provenance-b", "ai-security-a")
@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED.keys())
def test_a_forged_receipt_releases_nothing(scene: Scene, forge: Forge) -> None:
    def change(status: int, fields: Fields, body: bytes) -> tuple[int, Fields, bytes]:
        return status, with_receipt(fields, forge(receipt(fields), scene)), body

    assert scene.invoke().json() == 3  # untouched, it holds
    scene.tampered.changes["/v1/"] = change
    with pytest.raises(ProvenanceError) as caught:
        scene.invoke()
    assert caught.value.code.startswith("aiip.provenance-")
    # what was wrong is not in the message, and no octet of the token is anywhere
    assert not holds_a_token(str(caught.value.as_dict()))


def _swap(**given: Any) -> Change:
    def change(status: int, fields: Fields, body: bytes) -> tuple[int, Fields, bytes]:
        kind = given.get("content_type")
        if kind is not None:
            fields = [each for each in fields if each[0] != "content-type"] + [("content-type", kind)]
        return given.get("status", status), fields, given.get("body", body)

    return change


CHANGED: dict[str, Change] = {
    "8 body": _swap(body=b"4"),
    "8 body with one octet more": lambda status, fields, body: (status, fields, body + b" "),
    "8 no body": _swap(body=b""),
    "8 status": _swap(status=201),
    "8 content type": _swap(content_type="text/html"),
    "10 a stream instead": _swap(content_type="text/event-stream"),
    "11 receipt stripped": lambda status, fields, body: (status, with_receipt(fields), body),
    "11 receipt twice": lambda status, fields, body: (
        status,
        with_receipt(fields, receipt(fields), receipt(fields)),
        body,
    ),
    "63 policy in the answer": lambda status, fields, body: (
        status,
        with_receipt(fields),
        b'{"policy":{"requireSignedResults":false}}',
    ),
}


@pytest.mark.requirement("ai-provenance-b")
@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED.keys())
def test_a_changed_answer_releases_nothing(scene: Scene, change: Change) -> None:
    scene.tampered.changes["/v1/"] = change
    with pytest.raises(ProvenanceError):
        scene.invoke()


def test_an_earlier_answer_given_again_is_refused(scene: Scene) -> None:
    kept: list[tuple[int, Fields, bytes]] = []

    def replay(status: int, fields: Fields, body: bytes) -> tuple[int, Fields, bytes]:
        kept.append((status, fields, body))
        return kept[0]

    scene.tampered.changes["/v1/"] = replay
    assert scene.invoke().json() == 3
    with pytest.raises(ProvenanceError):
        scene.invoke()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_of_the_service_is_not_followed(scene: Scene, status: int) -> None:
    def change(_: int, fields: Fields, body: bytes) -> tuple[int, Fields, bytes]:
        return status, [*fields, ("location", scene.uri("/tool/other").replace("ai:", "https:"))], body

    scene.tampered.changes["/v1/"] = change
    with pytest.raises(AIIPError) as caught:
        scene.invoke()
    assert caught.value.code == "aiip.upstream-redirect"


def _stream(edit: Callable[[list[bytes]], list[bytes]]) -> Change:
    def change(status: int, fields: Fields, body: bytes) -> tuple[int, Fields, bytes]:
        events = [each + b"\n\n" for each in body.split(b"\n\n") if each]
        return status, fields, b"".join(edit(events))

    return change


STREAMS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "10 cut before its receipt": lambda events: events[:-1],
    "10 one left out": lambda events: events[:1] + events[2:],
    "10 moved": lambda events: [events[1], events[0], *events[2:]],
    "10 changed": lambda events: [events[0].replace(b"0}", b"9}"), *events[1:]],
    "10 goes on": lambda events: [*events, events[0]],
    "10 nothing": lambda events: [],
}


@pytest.mark.requirement("ai-provenance-b")
@pytest.mark.parametrize("edit", STREAMS.values(), ids=STREAMS.keys())
def test_a_stream_that_was_touched_has_no_result(
    scene: Scene, edit: Callable[[list[bytes]], list[bytes]]
) -> None:
    scene.tampered.changes["/v1/"] = _stream(edit)
    with pytest.raises(ProvenanceError):
        scene.invoke("/agent/count?to=4")


def test_the_events_of_another_stream_are_refused(scene: Scene) -> None:
    kept: list[bytes] = []

    def splice(status: int, fields: Fields, body: bytes) -> tuple[int, Fields, bytes]:
        kept.append(body)
        return status, fields, kept[0]

    scene.tampered.changes["/v1/"] = splice
    scene.invoke("/agent/count?to=2")
    with pytest.raises(ProvenanceError):
        scene.invoke("/agent/count?to=2")


def test_a_random_kid_makes_the_client_fetch_the_keys_once_more_and_not_each_time(scene: Scene) -> None:
    def change(status: int, fields: Fields, body: bytes) -> tuple[int, Fields, bytes]:
        forged = _header(kid=b64(hashlib.sha256(str(time.time_ns()).encode()).digest()))
        return status, with_receipt(fields, forged(receipt(fields), scene)), body

    policy = ai_policy([int(scene.authority.partition(":")[2])])
    scene.tampered.changes["/v1/"] = change
    with (
        Transport(
            NetConfig(policy=policy, resolver=names_resolver({"factory.test": "127.0.0.1"}), tls=scene.trust)
        ) as wire,
        AIClient(ResolverSettings(dns=False), transport=wire) as client,
    ):
        for _ in range(5):
            with pytest.raises(ProvenanceError):
                client.invoke(scene.uri("/tool/add?a=1&b=2"))
    fetched = [path for path in scene.tampered.paths if path.endswith("jwks.json")]
    assert len(fetched) == 2


@pytest.mark.parametrize(
    "keys",
    [
        lambda own: {"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "a", "alg": "HS256"}]},
        lambda own: {"keys": [own, {**own, "d": "AAAA"}]},
        lambda own: {"keys": [own] * 500},
        lambda own: {"keys": [{**own, "kid": "another-name"}]},
        lambda own: {"keys": []},
        lambda own: [own],
    ],
    ids=["shared", "private", "too many", "kid is no thumbprint", "none", "no object"],
)
def test_a_key_set_that_no_authority_should_publish_stops_everything(scene: Scene, keys: Any) -> None:
    own = scene.keys.signer(time.time()).public()
    scene.tampered.changes["jwks"] = _swap(body=json.dumps(keys(own)).encode())
    with pytest.raises((AIIPError, SignatureError)):
        scene.invoke()
    assert not any("/v1/" in path for path in scene.tampered.paths)


@pytest.mark.parametrize("name", ["x" * 60_000, "https://evil.test", "http://factory.test"])
def test_keys_come_from_the_anchor_alone(scene: Scene, name: str) -> None:
    def change(status: int, fields: Fields, body: bytes) -> tuple[int, Fields, bytes]:
        return status, fields, json.dumps(json.loads(body) | {"jwks": name + "/jwks.json"}).encode()

    scene.tampered.changes[".well-known/aiip"] = change
    with pytest.raises(AIIPError):
        scene.invoke()
    assert not any("jwks" in path for path in scene.tampered.paths)
