"""DPoP proofs (RFC 9449): signed statements that the sender of a request has the key of its access token.

    key = generate_dpop_key()
    proof = sign_dpop_proof(key, method="POST", url=url, at=time.time(), access_token=token)

A proof names its own public key. It proves nothing until its `thumbprint` equals the `cnf.jkt` of the access
token, and its `id` was not seen before: both checks are the caller's. The claim `rqh` binds a proof to the
query and the body of a request to an ai:// resource too (RFC 9449 4.2 allows more claims).
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NoReturn

from onym.common.text import encode_base64url
from onym.errors import SecretError, SignatureError, URIError
from onym.sign import keys
from onym.sign.jws import make_claim_error, parse_time_claim
from onym.sign.keys import thumbprint
from onym.sign.receipts import access_token_hash
from onym.uri.generic import URI
from onym.uri.secret import Secret

#: `typ` of a proof (RFC 9449 4.2)
PROOF_TYPE: Final = "dpop+jwt"
#: the signatures that Onym accepts in proofs, in the order of preference: ES256 is the quickest to verify
DPOP_ALGORITHMS: Final = ("ES256", "Ed25519")
#: bytes of a proof, and of its header in base64url
MAX_PROOF: Final = 8 * 1024
_MAX_HEADER: Final = 2 * 1024
#: characters of `jti`, of a nonce and of `htu`
MAX_PROOF_ID: Final = 256
MAX_NONCE: Final = 512
_MAX_URL: Final = 4 * 1024
#: how far the clocks of client and server may be apart, in seconds
PROOF_SECONDS: Final = 60.0
#: headers of proofs whose keys are kept: a client sends the same header with every proof
_MOST_KEYS: Final = 1024
_HASH: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")
#: RFC 9449 8.1: NQCHAR of RFC 6749
_NONCE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+\Z")
#: members that name a key in another way, or that need an extension (RFC 7515 4.1)
_FORBIDDEN: Final = frozenset({"crit", "b64", "jku", "x5u", "x5c"})


@dataclass(frozen=True, slots=True)
class DPoPKey:
    """A private key for proofs, ES256. `thumbprint` is what an access token names in `cnf.jkt`.

    It cannot be pickled, and `repr()` does not show the key; `export_key` returns it for storage.
    """

    thumbprint: str
    _signer: keys.SigningKey = field(repr=False)
    _header: str = field(repr=False)

    @classmethod
    def from_jwk(cls, text: Secret) -> DPoPKey:
        """Return the key of a private JWK. Raises SignatureError if it is not for ES256."""
        return _make_key(keys.SigningKey.from_jwk(text, algorithm=DPOP_ALGORITHMS[0]))

    def export_key(self) -> Secret:
        """Return the private JWK, for storage."""
        return self._signer.secret()

    @property
    def public_jwk(self) -> dict[str, Any]:
        """The public JWK, with only the members of the key itself."""
        return _get_public_members(self._signer)

    def __reduce__(self) -> NoReturn:
        raise SecretError(
            "a DPoP key cannot be pickled", hint="Store export_key().reveal() where it is safe."
        )


def generate_dpop_key() -> DPoPKey:
    """Return a new key. Servers cannot link sessions if each session and server has its own key."""
    return _make_key(keys.SigningKey.generate(DPOP_ALGORITHMS[0]))


def _make_key(signer: keys.SigningKey) -> DPoPKey:
    public = _get_public_members(signer)
    header = {"typ": PROOF_TYPE, "alg": signer.algorithm, "jwk": public}
    text = encode_base64url(json.dumps(header, separators=(",", ":")).encode())
    return DPoPKey(thumbprint(public), keys.SigningKey(signer.algorithm, None, signer.native), text)


def _get_public_members(signer: keys.SigningKey) -> dict[str, Any]:
    public = signer.public()
    return {name: public[name] for name in keys.PUBLIC if name in public}


def sign_dpop_proof(
    key: DPoPKey,
    *,
    method: str,
    url: str,
    at: float,
    access_token: str | None = None,
    nonce: str | None = None,
    request_hash: str | None = None,
) -> str:
    """Return a proof for one request, the value of its `DPoP` field.

    `url` may have a query and a fragment, which are left out (RFC 9449 4.2). `at` is the time in seconds
    since the epoch. `access_token` is the token that is sent with the request; None at a token endpoint.
    `nonce` is the server's last `DPoP-Nonce`. `request_hash` is the `rqh` of a request to an ai:// resource
    (`onym.sign.request_hash`). Raises SignatureError for a nonce that the RFC does not allow.
    """
    if nonce is not None and not is_nonce(nonce):
        raise make_claim_error(
            "nonce", "bad-claim", "the server's nonce has characters that RFC 9449 forbids"
        )
    claims: dict[str, Any] = {
        "jti": secrets.token_urlsafe(16),
        "htm": method,
        "htu": url.partition("#")[0].partition("?")[0],
        "iat": int(at),
        "ath": None if access_token is None else access_token_hash(access_token),
        "nonce": nonce,
        "rqh": request_hash,
    }
    claims = {name: value for name, value in claims.items() if value is not None}
    text = f"{key._header}.{encode_base64url(json.dumps(claims, separators=(',', ':')).encode())}"
    return f"{text}.{encode_base64url(key._signer.sign(text.encode('ascii')))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DPoPProof:
    """The claims of a valid proof. `issued` is in seconds since the epoch.

    `thumbprint` is that of the proof's key, `id` its `jti`, `token_hash` its `ath`, `request_hash` its `rqh`.
    """

    thumbprint: str
    id: str
    issued: float
    nonce: str | None = None
    token_hash: str | None = None
    request_hash: str | None = None


def verify_dpop_proof(
    proof: str,
    *,
    method: str,
    url: str,
    at: float,
    access_token: str | None = None,
    algorithms: Collection[str] = DPOP_ALGORITHMS,
) -> DPoPProof:
    """Verify a proof by the rules of RFC 9449 4.3, and return its claims.

    `method` and `url` are those of the request: `url` must come from the server's own configuration, never
    from the fields Host or Forwarded. Its query and fragment are left out. With `access_token`, the proof
    must be for this token. The proof must be at most 60 seconds from `at` (seconds since the epoch).

    The caller compares `thumbprint`, `nonce` and `request_hash`, and refuses an `id` that it has seen.
    Raises SignatureError: `sign.too-large`, `sign.malformed`, `sign.bad-header`, `sign.bad-algorithm`,
    `sign.bad-key`, `sign.weak-key`, `sign.bad-signature`, `sign.bad-claim`, `sign.bad-hash`, `sign.expired`
    and `sign.not-yet`.
    """
    if len(proof) > MAX_PROOF:
        raise SignatureError(f"the proof is longer than {MAX_PROOF} bytes", code="sign.too-large")
    head, body, signature = _split_proof(proof)
    algorithm, key, name = _read_header(head)
    if keys.normalize_algorithm(algorithm) not in algorithms:
        raise _make_algorithm_error(algorithms)
    if not key.verify(algorithm, f"{head}.{body}".encode("ascii"), signature):
        raise SignatureError("the signature of the proof is invalid", code="sign.bad-signature")
    claims = keys.parse_json_object(keys.decode_base64url(body, "proof's claims set"), "proof's claims set")
    _require_request(claims, method, url)
    issued = _require_time(claims, at)
    token_hash = _get_hash(claims, "ath")
    if access_token is not None and not _is_same(token_hash, access_token_hash(access_token)):
        raise make_claim_error("ath", "bad-hash", "the proof is for another access token, or for none")
    return DPoPProof(
        thumbprint=name,
        id=_get_id(claims),
        issued=issued,
        nonce=_get_nonce(claims),
        token_hash=token_hash,
        request_hash=_get_hash(claims, "rqh"),
    )


def _split_proof(proof: str) -> tuple[str, str, bytes]:
    parts = proof.split(".", 3)
    if len(parts) != 3 or not all(parts) or not proof.isascii() or len(parts[0]) > _MAX_HEADER:
        message = "the proof is not a JWS of three parts with a short header"
        raise SignatureError(
            message, code="sign.malformed", hint="Send one dpop+jwt, header.payload.signature."
        )
    return parts[0], parts[1], keys.decode_base64url(parts[2], "proof's signature")


@lru_cache(maxsize=_MOST_KEYS)
def _read_header(text: str) -> tuple[str, keys.Key, str]:
    """Return algorithm, public key and its thumbprint. Importing a key costs as much as verifying with it."""
    header = keys.parse_json_object(keys.decode_base64url(text, "proof's header"), "proof's header")
    if header.get("typ") != PROOF_TYPE:
        raise SignatureError(f"the type of the proof is not {PROOF_TYPE}", code="sign.bad-header")
    if not _FORBIDDEN.isdisjoint(header):
        message = "the header of the proof names a key other than by jwk, or needs an extension"
        raise SignatureError(message, code="sign.bad-header")
    algorithm, jwk = header.get("alg"), header.get("jwk")
    if not isinstance(algorithm, str) or keys.normalize_algorithm(algorithm) not in DPOP_ALGORITHMS:
        raise _make_algorithm_error(DPOP_ALGORITHMS)
    if not isinstance(jwk, dict):
        raise SignatureError("the header of the proof has no jwk", code="sign.bad-header")
    return algorithm, *_read_jwk(jwk, algorithm)


def _read_jwk(jwk: Mapping[str, Any], algorithm: str) -> tuple[keys.Key, str]:
    """Return the public key of a proof for this algorithm, and its thumbprint."""
    if not keys.PRIVATE.isdisjoint(jwk):
        raise keys.make_key_error("the proof publishes a private or shared key", "Create a new key at once.")
    kind = keys.ALGORITHMS[algorithm].kind
    named = keys.normalize_algorithm(str(jwk.get("alg", algorithm)))
    if (jwk.get("kty"), jwk.get("crv")) != kind or named != keys.normalize_algorithm(algorithm):
        raise keys.make_key_error("the key of the proof is for another algorithm")
    names = ("x", "y") if kind[0] == "EC" else ("x",)
    public: dict[str, Any] = {name: jwk.get(name) for name in ("kty", "crv", *names)}
    if not all(isinstance(value, str) for value in public.values()):
        raise keys.make_key_error("the members of a key must be strings")
    keys.require_valid_point(str(kind[1]), *(public[name] for name in names))
    return keys.Key(kind, None, algorithm, keys.import_native_key(public)), thumbprint(public)


def _make_algorithm_error(algorithms: Collection[str]) -> SignatureError:
    return SignatureError(
        "the proof is signed with an algorithm that is not allowed here",
        code="sign.bad-algorithm",
        hint=f"allowed: {', '.join(algorithms)}",
    )


def _require_request(claims: Mapping[str, Any], method: str, url: str) -> None:
    """Raise unless the proof is for this method and this URL (RFC 9449 4.3, items 8 and 9)."""
    if claims.get("htm") != method:
        raise make_claim_error("htm", "bad-claim", "the proof is for another method")
    found = claims.get("htu")
    if not isinstance(found, str) or len(found) > _MAX_URL:
        raise make_claim_error("htu", "bad-claim", f"it is not a string of at most {_MAX_URL} characters")
    if "?" in found or "#" in found:
        # it looks as if the query were bound, and it is not
        raise make_claim_error("htu", "bad-claim", "it must not have a query or a fragment")
    expected = url.partition("#")[0].partition("?")[0]
    if found != expected and _normalize_url(found) != _normalize_url(expected):
        raise make_claim_error("htu", "bad-claim", "the proof is for another URL")


def _normalize_url(url: str) -> str:
    """Return the normal form of RFC 3986 6.2.2 and 6.2.3. Raises SignatureError."""
    try:
        return str(URI.parse(url, "URI").normalize())
    except URIError:
        raise make_claim_error("htu", "bad-claim", "it is not a URL") from None


def _require_time(claims: Mapping[str, Any], at: float) -> float:
    """Return when the proof was made, which must be now (RFC 9449 11.1)."""
    issued = parse_time_claim(claims, "iat")
    if not issued <= at + PROOF_SECONDS:  # also true for NaN
        raise make_claim_error("iat", "not-yet", "the proof is from the future: are both clocks right?")
    if not at - PROOF_SECONDS <= issued:
        raise make_claim_error("iat", "expired", f"the proof is older than {PROOF_SECONDS:.0f} seconds")
    # not claims of RFC 9449, but of every JWT (RFC 7519 4.1.4, 4.1.5)
    if "exp" in claims and at >= parse_time_claim(claims, "exp") + PROOF_SECONDS:
        raise make_claim_error("exp", "expired", "the proof has expired")
    if "nbf" in claims and at + PROOF_SECONDS < parse_time_claim(claims, "nbf"):
        raise make_claim_error("nbf", "not-yet", "the proof is not valid yet")
    return issued


def _get_id(claims: Mapping[str, Any]) -> str:
    value = claims.get("jti")
    if not isinstance(value, str) or not 0 < len(value) <= MAX_PROOF_ID:
        raise make_claim_error("jti", "bad-claim", f"it is not a string of 1 to {MAX_PROOF_ID} characters")
    return value


def _get_nonce(claims: Mapping[str, Any]) -> str | None:
    if "nonce" not in claims:
        return None
    value = claims["nonce"]
    if not isinstance(value, str) or not is_nonce(value):
        raise make_claim_error("nonce", "bad-claim", "it is not a nonce of RFC 9449 8.1")
    return value


def is_nonce(text: str) -> bool:
    """Report whether this is a nonce (RFC 9449 8.1) of at most 512 characters."""
    return len(text) <= MAX_NONCE and _NONCE.match(text) is not None


def _get_hash(claims: Mapping[str, Any], name: str) -> str | None:
    if name not in claims:
        return None
    value = claims[name]
    if not isinstance(value, str) or not _HASH.match(value):
        raise make_claim_error(name, "bad-claim", "it is not a SHA-256 in base64url")
    return value


def _is_same(given: str | None, expected: str) -> bool:
    return given is not None and hmac.compare_digest(given, expected)
