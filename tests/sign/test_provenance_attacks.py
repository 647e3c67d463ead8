"""Each attack on provenance of the shared vectors, made and refused; the positive controls pass.

The ids are those of `provenance_attacks.json`; the attacks are written here from their descriptions. What is
about fetching key sets is held where they are fetched, and named in ELSEWHERE.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import sign_support
from onym.errors import SignatureError
from onym.sign.keys import RECEIPT_ALGORITHMS, SigningKey, decode_base64url, read_authority_keys, thumbprint
from onym.sign.receipts import StreamChain, access_token_hash, content_digest, sign_receipt, verify_filed
from sign_support import (
    BODY,
    EXPECTED,
    NOW,
    RECEIPT,
    authority,
    b64,
    claims,
    forged,
    header,
    jwks,
    key,
    verified,
)
from support import load_shared

ALL = tuple(RECEIPT_ALGORITHMS)
#: the layers of the vectors that are of this room
LAYERS = {"jws", "claims", "jwks"}
#: attacks on the fetching of keys, and where they are held
ELSEWHERE = {
    "prov-068": "the anchor document: jwks must have the anchor's origin",
    "prov-069": "the anchor document: jwks must have the anchor's origin",
    "prov-070": "net follows no redirect; discovery refuses one on a well-known URL",
    "prov-071": "net: addresses are checked before a connection is made",
    "prov-073": "the resolver: one refetch a minute for an authority",
    "prov-075": "the resolver: key sets have no stale-if-error",
    "prov-076": "the resolver: key sets are kept by anchor",
}
ATTACKS: dict[str, Callable[[], None]] = {}
_refused: list[str] = []


def attack(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def keep(function: Callable[[], None]) -> Callable[[], None]:
        assert name not in ATTACKS
        ATTACKS[name] = function
        return function

    return keep


def refused(token: str | None, *args: Any, **more: Any) -> None:
    """The verifier says no, in the one way in which it does."""
    more.setdefault("algorithms", ALL)
    _refused.append(sign_support.code(token, *args, **more))


def set_refused(octets: bytes) -> None:
    """The whole key set is refused."""
    with pytest.raises(SignatureError) as caught:
        read_authority_keys(octets)
    _refused.append(caught.value.code)


@contextmanager
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield


HERE = [name for name in (f"prov-{number:03}" for number in range(1, 78)) if name not in ELSEWHERE]


@pytest.mark.parametrize("name", HERE)
def test_the_attack_is_refused_without_any_connection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _refused.clear()
    with no_network(monkeypatch):
        ATTACKS[name]()
    assert _refused, "nothing was refused, so nothing was tried"


def test_every_attack_of_the_table_is_made() -> None:
    assert list(ATTACKS) == HERE


def test_every_shared_attack_of_these_layers_has_its_row() -> None:
    vectors = load_shared("provenance_attacks.json")
    shared = {each["id"] for each in vectors["attacks"] if each["layer"] in LAYERS}
    assert shared == ATTACKS.keys() | ELSEWHERE.keys()


# jws


@attack("prov-001")
def alg_none() -> None:
    refused(forged(header(alg="none"), signature=b""))


@attack("prov-002")
def alg_none_in_other_spellings() -> None:
    for name in ("None", "NONE", "nOnE", "none ", "none\0", "ed25519", "ED25519", "Ed25519 "):
        refused(forged(header(alg=name)), algorithms=(*ALL, name))
        refused(forged(header(alg=name), signature=b""), algorithms=(*ALL, name))


@attack("prov-003")
def alg_none_with_a_signature() -> None:
    refused(forged(header(alg="none"), signature=decode_base64url(forged().rpartition(".")[2], "signature")))


def _hmac(secret: bytes, head: dict[str, Any]) -> str:
    signed = f"{b64(head)}.{b64(claims())}"
    return f"{signed}.{b64(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


def _public(signer: SigningKey) -> Any:
    return signer.native.public_key


def _shared_secrets(signer: SigningKey) -> list[bytes]:
    form, encoding = serialization.PublicFormat, serialization.Encoding
    public, jwk = _public(signer), signer.public()
    return [
        public.public_bytes(encoding.PEM, form.SubjectPublicKeyInfo),
        public.public_bytes(encoding.PEM, form.SubjectPublicKeyInfo).strip(),
        public.public_bytes(encoding.DER, form.SubjectPublicKeyInfo),
        public.public_bytes(encoding.OpenSSH, form.OpenSSH),
        json.dumps(jwk).encode(),
        json.dumps(jwk, separators=(",", ":"), sort_keys=True).encode(),
        decode_base64url(jwk.get("n") or jwk["x"], "key"),
        b"",
    ]


def _confused(chosen: slice) -> None:
    for algorithm in ALL:
        signer = key(algorithm)
        for secret in _shared_secrets(signer)[chosen]:
            refused(_hmac(secret, header(signer, alg="HS256")), authority(signer), algorithms=(*ALL, "HS256"))
            refused(_hmac(secret, header(signer)), authority(signer))


@attack("prov-004")
def hs256_with_the_public_key_as_pem() -> None:
    _confused(slice(0, 2))


@attack("prov-005")
def hs256_with_the_public_jwk() -> None:
    _confused(slice(4, 6))


@attack("prov-006")
def hs256_with_der_ssh_and_the_modulus() -> None:
    _confused(slice(2, 4))
    _confused(slice(6, 8))


@attack("prov-007")
def a_shared_key_in_the_set() -> None:
    for member in ({"kty": "oct", "k": "AAAA"}, {"kty": "oct"}, {"kty": "oct", "alg": "HS256", "kid": "x"}):
        set_refused(jwks(key(), member))


@attack("prov-008")
def a_key_in_the_header() -> None:
    stranger = key(number=1)
    refused(forged(header(jwk=stranger.public()), signer=stranger))
    refused(forged(header(stranger, jwk=stranger.public()), signer=stranger))
    refused(forged(header(jwk=key().public())))  # its own key neither


@attack("prov-009")
def a_key_set_in_the_header() -> None:
    refused(forged(header(jku="https://evil.example/jwks.json")))


@attack("prov-010")
def a_key_set_on_the_own_origin_in_the_header() -> None:
    for url in (
        "redirect?u=https://evil.example/jwks.json",
        "uploads/jwks.json",
        ".well-known/aiip.jwks.json",
    ):
        refused(forged(header(jku=f"https://bank.example/{url}")))


@attack("prov-011")
def a_certificates_address_in_the_header() -> None:
    refused(forged(header(x5u="https://evil.example/cert.pem")))


@attack("prov-012")
def certificates_in_the_header() -> None:
    refused(forged(header(x5c=["MIIB"])))
    refused(forged(header(x5t="AAAA")))
    refused(forged(header(**{"x5t#S256": "AAAA"})))


@attack("prov-013")
def addresses_in_the_header_that_lead_inside() -> None:
    for name in ("jku", "x5u"):
        refused(forged(header(**{name: "http://169.254.169.254/latest/meta-data/"})))


@attack("prov-014")
def a_kid_that_is_a_path() -> None:
    for kid in ("../../../../dev/null", "/etc/hostname", "file:///dev/null"):
        refused(forged(header(kid=kid)))
        refused(_hmac(b"", header(kid=kid, alg="HS256")), algorithms=(*ALL, "HS256"))


@attack("prov-015")
def a_kid_that_is_a_query_or_no_text() -> None:
    for kid in ("x' UNION SELECT 'secret'--", {"$ne": None}, ["a"], 7, True, [key().kid], ""):
        refused(forged(header(kid=kid)))


@attack("prov-016")
def no_kid_with_several_keys() -> None:
    keys = authority(*(key("ES256", number) for number in range(3)))
    refused(forged(header(key("ES256", 1), kid=None), signer=key("ES256", 1)), keys)


@attack("prov-017")
def one_kid_twice() -> None:
    stranger = key(number=1)
    named = {**stranger.public(), "kid": key().kid}
    for members in ((key(), named), (named, key())):
        keys = authority(*members)
        assert keys.kids == {key().kid}
        assert len(keys.ignored) == 1
        refused(forged(signer=stranger), keys)
    set_refused(jwks(key(), key()))


@attack("prov-018")
def a_kid_of_a_key_for_another_algorithm() -> None:
    keys = authority(*(key(each) for each in ALL))
    for owner in ALL:
        for claimed in {*ALL, "EdDSA"} - {owner}:
            if (owner, claimed) != ("Ed25519", "EdDSA"):
                refused(forged(header(key(owner), alg=claimed), signer=key(owner)), keys)


@attack("prov-019")
def a_key_that_says_another_algorithm() -> None:
    refused(forged(header(key("PS256"), alg="RS256"), signer=_rs256()), authority(key("PS256")))
    both = (*ALL, "RS256")
    refused(
        forged(header(key("PS256"), alg="RS256"), signer=_rs256()), authority(key("PS256")), algorithms=both
    )


def _rs256() -> SigningKey:
    return SigningKey("RS256", key("PS256").kid, key("PS256").native)


@attack("prov-020")
def a_key_for_encryption() -> None:
    for member in (
        {"use": "enc"},
        {"key_ops": ["encrypt"]},
        {"key_ops": []},
        {"key_ops": "verify"},
        {"use": 7},
    ):
        keys = authority({**key().public(), **member})
        assert not keys.kids
        refused(forged(), keys)


def _rsa(n: int, e: int = 65537) -> dict[str, Any]:
    member = {
        "kty": "RSA",
        "n": b64(n.to_bytes((n.bit_length() + 7) // 8 or 1, "big")),
        "e": b64(e.to_bytes((e.bit_length() + 7) // 8 or 1, "big")),
    }
    return {**member, "alg": "PS256", "use": "sig", "kid": thumbprint(member)}


@attack("prov-021")
def weak_rsa() -> None:
    short = rsa.generate_private_key(65537, 1024).public_key().public_numbers().n
    for n in (short, (1 << 511) + 1, (1 << 2046) + 1):
        set_refused(jwks(_rsa(n)))


@attack("prov-022")
def rsa_with_numbers_that_hold_for_anything() -> None:
    good = _public(key("PS256")).public_numbers().n
    for n, e in (
        (good, 1),
        (good, 0),
        (good, 2),
        (good, 65536),
        (good + 1, 65537),
        (0, 65537),
        (good, 1 << 40),
    ):
        set_refused(jwks(_rsa(n, e)))


_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def _pair(r: int, s: int) -> bytes:
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def _es256(signature: bytes) -> None:
    refused(forged(header(key("ES256")), signature=signature), authority(key("ES256")))


@attack("prov-023")
def a_signature_of_zeros() -> None:
    for size in (64, 1, 63, 65, 128):
        _es256(bytes(size))


@attack("prov-024")
def a_signature_of_the_groups_order() -> None:
    for r, s in (
        (_ORDER, _ORDER),
        (1, _ORDER),
        (_ORDER, 1),
        (0, 1),
        (1, 0),
        (_ORDER + 1, 1),
        (2**256 - 1, 1),
    ):
        _es256(_pair(r, s))


@attack("prov-025")
def a_signature_in_der() -> None:
    signed = f"{b64(header(key('ES256')))}.{b64(claims())}"
    from cryptography.hazmat.primitives import hashes

    der = key("ES256").native.private_key.sign(signed.encode(), ec.ECDSA(hashes.SHA256()))
    refused(f"{signed}.{b64(der)}", authority(key("ES256")))


@attack("prov-026")
def a_second_signature_of_the_same_claims() -> None:
    """ECDSA has two for each; the id is kept by key and jti, so that the second is a replay."""
    token = sign_receipt(RECEIPT, key("ES256"))
    signed, _, tail = token.rpartition(".")
    octets = decode_base64url(tail, "signature")
    other = _pair(int.from_bytes(octets[:32], "big"), _ORDER - int.from_bytes(octets[32:], "big"))
    twin = f"{signed}.{b64(other)}"
    seen = _Seen()
    assert verified(token, authority(key("ES256")), seen=seen) == RECEIPT
    assert verified(twin, authority(key("ES256"))) == RECEIPT
    refused(twin, authority(key("ES256")), seen=seen)


@attack("prov-027")
def a_point_that_is_not_on_the_curve() -> None:
    good = key("ES256").public()
    for x, y in (
        (b"\0" * 32, b"\0" * 32),
        (b"\1" * 32, b"\2" * 32),
        (b"\xff" * 32, b"\xff" * 32),
        (b"", b""),
    ):
        member = {**good, "x": b64(x), "y": b64(y)}
        set_refused(jwks({**member, "kid": thumbprint(member)}))
    moved = {**good, "y": good["x"]}
    set_refused(jwks({**moved, "kid": thumbprint(moved)}))
    short = {**good, "x": b64(decode_base64url(good["x"], "x")[1:])}
    set_refused(jwks({**short, "kid": thumbprint(short)}))


@attack("prov-028")
def another_curve() -> None:
    for curve in ("P-384", "P-521", "secp256k1"):
        member = {**_foreign_curve(curve), "alg": "ES256", "use": "sig"}
        keys = authority({**member, "kid": thumbprint(member)})
        assert not keys.kids
        refused(forged(header(key("ES256"), kid=thumbprint(member)), signer=key("ES256")), keys)
    lying = {**key("ES384").public(), "crv": "P-256", "alg": "ES256"}
    set_refused(jwks({**lying, "kid": thumbprint(lying)}))


def _foreign_curve(curve: str) -> dict[str, Any]:
    from joserfc.jwk import ECKey

    return dict(ECKey.generate_key(curve).as_dict(private=False))


_P = 2**255 - 19


def _small_order() -> list[int]:
    """y of every point whose order divides 8: points, times the order of the large subgroup."""
    d = -121665 * pow(121666, -1, _P) % _P
    order = 2**252 + 27742317777372353535851937790883648493

    def add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        product = d * a[0] * b[0] * a[1] * b[1] % _P
        x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + product, -1, _P) % _P
        return x, (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, -1, _P) % _P

    def times(point: tuple[int, int], count: int) -> tuple[int, int]:
        found = (0, 1)
        for bit in f"{count:b}":
            found = add(found, found)
            found = add(found, point) if bit == "1" else found
        return found

    found = set()
    y = 2
    while len(found) < 5:
        y += 1
        square = (y * y - 1) * pow(d * y * y + 1, -1, _P) % _P
        x = pow(square, (_P + 3) // 8, _P)
        x = x if x * x % _P == square else x * pow(2, (_P - 1) // 4, _P) % _P
        if x * x % _P == square:
            found.add(times((x, y), order)[1])
    return sorted(found)


@attack("prov-029")
def an_ed25519_key_of_small_order() -> None:
    small = _small_order()
    assert len(small) == 5
    for y in (*small, _P, _P + 1, 2**255 - 1, 2**255 - 20):
        for sign in (0, 1 << 255):
            member = {"kty": "OKP", "crv": "Ed25519", "x": b64((y | sign).to_bytes(32, "little"))}
            set_refused(jwks({**member, "alg": "Ed25519", "kid": thumbprint(member)}))


@attack("prov-030")
def an_unknown_extension() -> None:
    refused(forged(header(crit=["exp-policy"], **{"exp-policy": 1})))


@attack("prov-031")
def malformed_crit() -> None:
    for crit in ([], "b64", ["alg"], ["b64", "b64"], ["x"], {}, 7):
        refused(forged(header(crit=crit)))


@attack("prov-032")
def b64_without_crit() -> None:
    for value in (False, True):
        refused(forged(header(b64=value)))


@attack("prov-033")
def b64_with_crit() -> None:
    head = header(b64=False, crit=["b64"])
    for payload in (json.dumps(claims()), b64(claims())):
        signed = f"{b64(head)}.{payload}"
        refused(f"{signed}.{b64(key().sign(signed.encode()))}")
        refused(f"{b64(head)}..{b64(key().sign(signed.encode()))}")


@attack("prov-034")
def b64_that_is_no_boolean() -> None:
    for value in ("false", 0, "", []):
        refused(forged(header(b64=value, crit=["b64"])))


@attack("prov-035")
def another_body_than_was_signed() -> None:
    head, _, tail = forged().split(".")
    refused(f"{head}..{tail}")
    refused(forged(), body=BODY + b" ")
    refused(forged(), body=json.dumps(json.loads(BODY)).encode())


@attack("prov-036")
def a_payload_and_another_body() -> None:
    refused(forged(payload=BODY))
    refused(forged(), body=b64(claims()).encode())


def _json_form(**more: Any) -> str:
    head, payload, tail = forged().split(".")
    return json.dumps({"payload": payload, "protected": head, "signature": tail, **more})


@attack("prov-037")
def two_signatures() -> None:
    head, payload, tail = forged().split(".")
    evil = forged(signer=key(number=1)).split(".")
    rows = [{"protected": evil[0], "signature": evil[2]}, {"protected": head, "signature": tail}]
    refused(json.dumps({"payload": payload, "signatures": rows}))


@attack("prov-038")
def an_unprotected_header() -> None:
    refused(
        _json_form(protected=b64({"typ": "aiip-receipt+jwt"}), header={"alg": "Ed25519", "kid": key().kid})
    )


@attack("prov-039")
def a_member_in_both_headers() -> None:
    refused(_json_form(header={"kid": "other"}))


@attack("prov-040")
def json_with_dots() -> None:
    refused(_json_form())
    refused(_json_form(x="a.b.c"))
    refused('{"a":".' + forged() + '."}')
    refused(f" {forged()}")
    refused(f"Bearer {forged()}")


@attack("prov-041")
def other_spellings_of_base64url() -> None:
    parts = forged().split(".")
    for at in range(3):
        for change in ("{}=", "{}==", " {}", "{} ", "{}\n", "{}\t", "+{}", "{}/", "{}\u0430", "{}A", "{}%3D"):
            changed = [change.format(part) if at == number else part for number, part in enumerate(parts)]
            refused(".".join(changed))
    # 64 octets leave four bits of the last character that must be zero
    loose = parts[2][:-1] + chr(ord(parts[2][-1]) + 1)
    refused(".".join((*parts[:2], loose)))


@attack("prov-042")
def a_header_member_twice() -> None:
    kid = key().kid
    for algorithms in ('"alg":"none","alg":"Ed25519"', '"alg":"Ed25519","alg":"none"'):
        refused(forged(f'{{{algorithms},"kid":"{kid}","typ":"aiip-receipt+jwt"}}'))
    escaped = r'"alg":"Ed25519","\u0061lg":"Ed25519"'
    refused(forged(f'{{{escaped},"kid":"{kid}","typ":"aiip-receipt+jwt"}}'))


@attack("prov-043")
def a_claim_twice() -> None:
    whole = json.dumps(claims())
    for more in ('"iss":"evil"', r'"\u0069ss":"evil"', '"iss":"https://bank.example"'):
        refused(forged(payload=f"{{{more},{whole[1:]}"))
        refused(forged(payload=f"{whole[:-1]},{more}}}"))
    inside = whole.replace('"st": 200', '"st": 500, "st": 200')
    assert inside != whole
    refused(forged(payload=inside))


@attack("prov-044")
def compressed_nested_or_encrypted() -> None:
    for more in ({"zip": "DEF"}, {"enc": "A256GCM"}, {"cty": "JWT"}):
        refused(forged(header(**more)))
    refused(forged(payload=forged()))
    refused(".".join(["e30"] * 5))
    refused(forged(header(alg="dir", enc="A256GCM")))


@attack("prov-045")
def too_large_or_too_deep() -> None:
    refused("A" * 10_000_000)
    refused(f"{'A' * 5_000_000}.{'A' * 5_000_000}.AA")
    refused("." * 1_000_000)
    refused(forged(b"[" * 100_000 + b"]" * 100_000))
    refused(forged(b'{"a":' * 400 + b"1" + b"}" * 400))
    refused(forged(payload=b'{"a":' + b"[" * 1000 + b"]" * 1000 + b"}"))
    refused(forged(payload=b'{"exp":' + b"9" * 2000 + b"}"))


@attack("prov-046")
def tokens_of_another_type() -> None:
    others = ("dpop+jwt", "JWT", "at+jwt", "aiip-gateway+jwt", "aiip-approval+jwt", "AIIP-Receipt+JWT")
    for name in (*others, "application/aiip-receipt+jwt", "aiip-receipt+jwt ", "", 7, ["aiip-receipt+jwt"]):
        refused(forged(header(typ=name)))
    refused(forged(header(typ=None)))


@attack("prov-047")
def a_costly_key_derivation() -> None:
    refused(forged(header(alg="PBES2-HS256+A128KW", enc="A128GCM", p2c=10**9, p2s="AAAA")))
    refused(forged(header(alg="PBES2-HS256+A128KW")))


# claims


class _Seen:
    """A replay store without end."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def __call__(self, identity: str, until: float) -> bool:
        known = identity in self.ids
        self.ids.add(identity)
        return known


@attack("prov-048")
def expired() -> None:
    refused(forged(), at=NOW + 121)
    refused(forged(payload=claims(iat=NOW - 50, exp=NOW - 1)))


@attack("prov-049")
def no_times() -> None:
    refused(forged(payload=claims(exp=None)))
    refused(forged(payload=claims(iat=None)))
    refused(forged(payload=claims(iat=None, exp=None)))


@attack("prov-050")
def from_the_future() -> None:
    refused(forged(payload=claims(iat=NOW + 3600, exp=NOW + 3700)))
    refused(forged(payload=claims(nbf=NOW + 3600)))


@attack("prov-051")
def times_that_are_none() -> None:
    whole = json.dumps(claims(exp=None))
    for value in ('"9999999999"', "true", "NaN", "1e400", "-1", "null", "[]", "Infinity", "-1e400", "1e308"):
        refused(forged(payload=f'{whole[:-1]},"exp":{value}}}'))
        refused(forged(payload=f'{json.dumps(claims(iat=None))[:-1]},"iat":{value}}}'))


@attack("prov-052")
def a_life_too_long() -> None:
    refused(forged(payload=claims(exp=NOW + 10 * 365 * 86400)))
    refused(forged(payload=claims(exp=NOW + 301)))


@attack("prov-053")
def shown_twice() -> None:
    seen = _Seen()
    assert verified(forged(), seen=seen) == RECEIPT
    refused(forged(), seen=seen)
    refused(forged(), seen=seen, at=NOW + 30)


@attack("prov-054")
def shown_again_behind_a_flood() -> None:
    """The store is told until when an id counts, which is never before the receipt has ended."""
    told: list[float] = []

    def seen(identity: str, until: float) -> bool:
        told.append(until)
        return len(told) > 1

    assert verified(forged(), seen=seen)
    last = told[0]
    refused(forged(), seen=lambda identity, until: False, at=last + 0.001)
    refused(forged(), seen=seen)


@attack("prov-055")
def of_another_issuer() -> None:
    other = key(number=1)
    refused(forged(header(other), claims(iss="https://other.example"), other))
    refused(forged(header(other), claims(iss="https://other.example"), other), authority(other))
    refused(forged(header(other), claims(), other))


@attack("prov-056")
def an_issuer_in_another_spelling() -> None:
    for name in (
        "https://BANK.example", "https://bank.example/", "https://bank.example.", "https://b%61nk.example",
        "https://bank.example:443", "https://b\u0430nk.example", "ai://bank.example", "bank.example",
        "http://bank.example", " https://bank.example", ["https://bank.example"],
    ):  # fmt: skip
        refused(forged(payload=claims(iss=name)))
    for name in (
        "ai://BANK.example/payments",
        "ai://bank.example:443/payments",
        "ai://bank.example/p%61yments",
    ):
        refused(forged(payload=claims(sub=name)))


@attack("prov-057")
def for_somebody_else() -> None:
    for audience in (None, "other", ["evil", RECEIPT.audience], [RECEIPT.audience], {}, "", 7):
        refused(forged(payload=claims(aud=audience)))


@attack("prov-058")
def of_another_request() -> None:
    refused(forged(), request="B" * 43)
    refused(forged(), nonce="b" * 22)
    refused(forged(), subject="ai://bank.example/other")


@attack("prov-059")
def of_another_users_request() -> None:
    refused(forged(), audience="https://another.example")
    bound = sign_receipt(replace(RECEIPT, token_hash=access_token_hash("x")), key())
    refused(bound)
    refused(bound, token_hash=access_token_hash("y"))
    refused(forged(), token_hash=access_token_hash("y"))


@attack("prov-060")
def changed_around_what_is_signed() -> None:
    refused(forged(), status=201)
    refused(forged(), content_type="text/html")
    refused(forged(), content_type="application/json; charset=utf-8")
    refused(forged(), content_type=None)
    refused(forged(), body=BODY.replace(b"10", b"99"))
    refused(forged(), body=BODY + b"\n")


@attack("prov-061")
def written_again_with_the_same_meaning() -> None:
    for body in (
        b'{"amount":10.0,"currency":"USD"}',
        b'{"currency":"USD","amount":10}',
        b'{"amount":1,"amount":10,"currency":"USD"}',
        BODY.replace(b"USD", b"\\u0055SD"),
    ):
        refused(forged(), body=body)


@attack("prov-062")
def without_a_receipt() -> None:
    refused(None)
    refused("")


@attack("prov-063")
def a_body_that_lowers_the_policy() -> None:
    refused(None, body=b'{"policy":{"requireSignedResults":false}}')
    refused(forged(), body=b'{"policy":{"requireSignedResults":false}}')
    refused(forged(payload=claims(policy={"requireSignedResults": False}, aud="other")))


@attack("prov-064")
def an_error_without_a_receipt() -> None:
    refused(None, status=500, content_type="application/problem+json", body=b"{}")
    refused(forged(), status=500)


def _stream(*data: str) -> tuple[str, Any]:
    chain = StreamChain(RECEIPT.request)
    for number, each in enumerate(data, 1):
        chain.add(str(number), "message", each)
    receipt = replace(RECEIPT, content_type="text/event-stream", digest=None, length=None, stream=chain.end)
    return sign_receipt(receipt, key()), chain.end


def _spliced(signed: tuple[str, ...], received: tuple[str, ...]) -> None:
    token, _ = _stream(*signed)
    _, end = _stream(*received)
    refused(token, body=None, stream=end, content_type="text/event-stream")


@attack("prov-065")
def a_stream_with_other_chunks_in_the_middle() -> None:
    _spliced(("one", "two", "three"), ("one", "evil", "three"))
    _spliced(("one", "two", "three"), ("one", "three", "two"))
    _spliced(("one", "two"), ("onetwo",))


@attack("prov-066")
def a_stream_that_was_cut() -> None:
    _spliced(("one", "two", "three"), ("one", "two"))
    _spliced(("one",), ())
    refused(None, body=None, stream=_stream("one")[1], content_type="text/event-stream")


@attack("prov-067")
def another_clock() -> None:
    """Time is an argument: nothing that came with the answer is asked, and a clock out of hand refuses."""
    for at in (NOW - 10_000, NOW + 10_000, float("nan"), float("inf"), -1.0):
        refused(forged(), at=at)
    refused(forged(header(date=NOW)), at=NOW + 10_000)


# key sets


@attack("prov-072")
def a_hostile_key_set() -> None:
    set_refused(jwks(*([{}] * 100_000)))
    set_refused(jwks(*([{}] * 21)))
    set_refused(b" " * 50_000_000)
    set_refused(b'{"keys":' + b"[" * 30_000 + b"]" * 30_000 + b"}")
    set_refused(b"<!doctype html><title>x</title>")
    set_refused(b'{"keys":[],"keys":[]}')
    set_refused(b'{"keys":{}}')
    for member in ("d", "p", "q", "dp", "dq", "qi", "oth", "k"):
        set_refused(jwks(key(), {**key("ES256").public(), member: "AAAA"}))


@attack("prov-074")
def a_key_that_is_not_there_yet_or_no_more() -> None:
    old, new = key(), key(number=1)
    token = forged(header(new), claims(), new)
    # unknown: the caller fetches the set once, and then it holds
    assert sign_support.code(token, authority(old)) == "sign.unknown-key"
    assert verified(token, authority(old, new)) == RECEIPT
    refused(forged(), authority(new))
    refused(forged(), authority(new, revoked=[old.kid]))
    refused(forged(), authority(old, new, revoked=[old.kid]))


@attack("prov-077")
def a_key_of_another_origin_with_this_kid() -> None:
    stranger = key(number=1)
    evil = authority({**stranger.public(), "kid": key().kid})
    refused(forged(signer=stranger))
    refused(forged(signer=stranger), evil)
    refused(forged(), evil)


# positive controls


def test_ok_01_a_valid_es256_receipt_is_accepted() -> None:
    token = sign_receipt(RECEIPT, key("ES256"))
    assert verified(token, authority(key(), key("ES256"))) == RECEIPT


def test_ok_02_a_valid_eddsa_receipt_is_accepted_where_ed25519_is() -> None:
    assert verified(forged(header(alg="EdDSA")), algorithms=("Ed25519",)) == RECEIPT


def test_ok_03_ps256_with_2048_bits_is_accepted_where_it_is_allowed() -> None:
    token = sign_receipt(RECEIPT, key("PS256"))
    assert _public(key("PS256")).key_size == 2048
    assert verified(token, authority(key("PS256")), algorithms=("PS256",)) == RECEIPT


def test_ok_04_content_beside_its_receipt_is_accepted_octet_by_octet() -> None:
    """The binding has no detached JWS: the content is bound by its digest."""
    binary = bytes(range(256))
    bound = replace(RECEIPT, digest=content_digest(binary), length=256)
    assert verified(sign_receipt(bound, key()), expected=replace(EXPECTED, body=binary)) == bound


def test_ok_06_the_edges_of_time_are_inside() -> None:
    assert verified(forged(), at=NOW + 60)
    assert sign_support.code(forged(), at=NOW + 60.001) == "aiip.provenance-stale"
    ending = forged(payload=claims(exp=NOW + 30))
    assert verified(ending, at=NOW + 29.999)
    assert sign_support.code(ending, at=NOW + 30) == "aiip.provenance-stale"


def test_ok_07_a_set_with_unknown_members_and_keys_is_accepted_and_they_are_left_out() -> None:
    others = [
        {"kty": "AKP", "alg": "ML-DSA-44", "kid": "x", "pub": "AAAA"},
        {"kty": "OKP", "crv": "X25519", "x": "AAAA", "alg": "ECDH-ES", "kid": "y"},
        {**key("ES256").public(), "kid": None},
        {**key("ES256").public(), "kid": "other"},
        {"kty": "RSA", "alg": "RS256", "kid": "z", "n": "AAAA", "e": "AQAB"},
        {},
    ]
    own = {**key().public(), "x-unknown": {"a": 1}}
    keys = authority(*others, own, more=[1], also={"x": None})
    assert keys.kids == {key().kid}
    assert [each.split(" ", 2)[1] for each in keys.ignored] == ["1", "2", "3", "4", "5", "6"]
    assert verified(forged(), keys) == RECEIPT


def test_a_filed_receipt_meets_the_same_refusals() -> None:
    for token in (
        forged(header(alg="none")),
        forged(header(jku="x")),
        forged(signature=b"\0" * 64),
        "x",
        None,
    ):
        with pytest.raises(sign_support.ProvenanceError):
            verify_filed(token, authority())
