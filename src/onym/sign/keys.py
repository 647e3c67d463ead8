"""Keys: sets of public ones as JWKS (RFC 7517), and private ones that sign.

Each kind serves named algorithms: a key never serves an algorithm that is not its own. `AuthorityKeys` are
the keys of an ai:// authority, by the stricter rules of AIIP/HTTPS v1 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from onym._lazy import require
from onym.errors import SignatureError
from onym.sign._jwk import (
    ALGORITHMS,
    PRIVATE,
    PUBLIC,
    RECEIPT_ALGORITHMS,
    RSA_BITS,
    Key,
    bad_key,
    kind_of,
    model,
    native_key,
    texts,
    thumbprint,
)
from onym.sign._strict import read_object
from onym.sign.authority import MAX_HISTORY, AuthorityKeys, read_authority_keys
from onym.uri.secret import Secret

__all__ = [
    "ALGORITHMS",
    "MAX_HISTORY",
    "MAX_KEYS",
    "MAX_KEY_SET",
    "RECEIPT_ALGORITHMS",
    "AuthorityKeys",
    "Key",
    "KeySet",
    "Signer",
    "SigningKey",
    "read_authority_keys",
    "read_keys",
    "thumbprint",
]

#: octets of a key set
MAX_KEY_SET: Final = 256 * 1024
MAX_KEYS: Final = 64
_KINDS: Final = frozenset(ALGORITHMS.values())
_MOST_KID: Final = 512


class Signer(Protocol):
    """What signs: a key of this process (`SigningKey`), or one that a device keeps (`PKCS11Signer`)."""

    @property
    def algorithm(self) -> str:
        """The one algorithm that it signs with."""
        ...

    @property
    def kid(self) -> str | None:
        """The key's name; for receipts the thumbprint of its public part."""
        ...

    def sign(self, octets: bytes) -> bytes:
        """The signature in the form of JWS (RFC 7518 3, RFC 8037 3.1). Raises SignatureError."""
        ...

    def public(self) -> dict[str, Any]:
        """The public JWK, to be published."""
        ...


@dataclass(frozen=True, slots=True)
class KeySet:
    """Public keys to verify with."""

    keys: tuple[Key, ...]

    def candidates(self, algorithm: str, kid: str | None) -> tuple[Key, ...]:
        """The keys that may have made a signature; those of its kid alone, where it names one."""
        return tuple(key for key in self.keys if key.fits(algorithm, kid))


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key. It signs with `algorithm` alone; printed, it shows nothing of itself."""

    algorithm: str
    kid: str | None
    native: Any = field(repr=False)

    @classmethod
    def generate(cls, algorithm: str, *, kid: str | None = None) -> SigningKey:
        """A new key for this algorithm. Raises SignatureError for one that is not known."""
        require("joserfc", "ai")
        from joserfc import jwk  # late: cryptography is heavy

        kty, curve = kind_of(algorithm)
        makers: dict[str, Any] = {"OKP": jwk.OKPKey, "EC": jwk.ECKey, "RSA": jwk.RSAKey}
        return cls(algorithm, kid, makers[kty].generate_key(curve or RSA_BITS[0]))

    @classmethod
    def read(cls, text: Secret, *, algorithm: str) -> SigningKey:
        """A key from a private JWK. Raises SignatureError where it is none for this algorithm."""
        data = read_object(text.reveal().encode("utf-8", "replace"), "private key")
        kind = kind_of(algorithm)
        key = _key(data, frozenset({kind}))
        if key is None or "d" not in data or key.algorithm not in {None, *_names_of(algorithm)}:
            raise SignatureError(f"this is no private key for {algorithm}", code="sign.bad-key")
        return cls(algorithm, key.kid, native_key(data))

    def with_thumbprint(self) -> SigningKey:
        """The same key, its kid the thumbprint of its public part (RFC 7638), as receipts ask for."""
        return replace(self, kid=thumbprint(self.native.as_dict(private=False)))

    def sign(self, octets: bytes) -> bytes:
        """The signature over these octets."""
        return bytes(model(self.algorithm).sign(octets, self.native))

    def secret(self) -> Secret:
        """The private JWK, to be kept."""
        import json

        return Secret(json.dumps({**self.native.as_dict(private=True), **self._names()}))

    def public(self) -> dict[str, Any]:
        """The public JWK, to be published."""
        plain = self.native.as_dict(private=False)
        return {name: plain[name] for name in PUBLIC if name in plain} | self._names()

    def _names(self) -> dict[str, str]:
        return {"alg": self.algorithm, "use": "sig"} | ({} if self.kid is None else {"kid": self.kid})


def read_keys(octets: bytes) -> KeySet:
    """The usable keys of a JWK Set. Raises SignatureError.

    Keys of other types, curves and uses are left out (RFC 7517 5); a private or shared key, a weak RSA key
    or a broken one spoils the set.
    """
    if len(octets) > MAX_KEY_SET:
        raise SignatureError(f"the key set is longer than {MAX_KEY_SET} octets", code="sign.too-large")
    found = read_object(octets, "key set").get("keys")
    if not isinstance(found, list) or len(found) > MAX_KEYS:
        raise SignatureError(f"the key set is no list of at most {MAX_KEYS} keys", code="sign.bad-key")
    return KeySet(tuple(_public_keys(found)))


def _public_keys(found: Iterable[object]) -> Iterable[Key]:
    for each in found:
        if not isinstance(each, dict):
            raise bad_key("a member of the key set is no key")
        if not PRIVATE.isdisjoint(each):
            raise bad_key(
                "the key set publishes a private or shared key", "its owner must replace it at once"
            )
        key = _key(each, _KINDS)
        if key is not None:
            yield key


def _key(data: Mapping[str, Any], kinds: frozenset[tuple[str, str | None]]) -> Key | None:
    """The key of this JWK; None for one that is not of these kinds, or not for signatures."""
    kty, curve = data.get("kty"), data.get("crv")
    kind = next((each for each in kinds if each[0] == kty and each[1] in {None, str(curve)}), None)
    operations = data.get("key_ops", ["verify"])
    if kind is None or data.get("use", "sig") != "sig" or not {"verify", "sign"} & texts(operations):
        return None
    kid, algorithm = data.get("kid"), data.get("alg")
    if not _short(kid) or not _short(algorithm):
        raise bad_key("kid and alg of a key are short texts")
    plain = {name: data[name] for name in PUBLIC if name in data}
    return Key(kind, kid, algorithm, native_key(plain))


def _names_of(algorithm: str) -> set[str]:
    """The algorithm's names: EdDSA is the older one of Ed25519."""
    return {"EdDSA", "Ed25519"} if algorithm in {"EdDSA", "Ed25519"} else {algorithm}


def _short(value: object) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= _MOST_KID)
