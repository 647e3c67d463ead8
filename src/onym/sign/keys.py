"""Keys: sets of public ones as JWKS (RFC 7517), and private ones that sign.

Three kinds are known, each for named algorithms: a key never serves an algorithm that is not its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from onym.errors import SignatureError
from onym.sign._strict import decode, read_object
from onym.uri.secret import Secret

__all__ = ["ALGORITHMS", "MAX_KEYS", "MAX_KEY_SET", "Key", "KeySet", "SigningKey", "read_keys"]

#: octets of a key set
MAX_KEY_SET: Final = 256 * 1024
MAX_KEYS: Final = 64
#: algorithm -> (kty, crv). EdDSA is the older name of Ed25519 here (RFC 9864 2.2)
ALGORITHMS: Final[Mapping[str, tuple[str, str | None]]] = MappingProxyType(
    {
        "Ed25519": ("OKP", "Ed25519"),
        "EdDSA": ("OKP", "Ed25519"),
        "ES256": ("EC", "P-256"),
        "RS256": ("RSA", None),
    }
)
_KINDS: Final = frozenset(ALGORITHMS.values())
#: RFC 7518 6.2.2, 6.3.2, 6.4: what only a private or shared key has
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_PUBLIC: Final = ("kty", "crv", "x", "y", "n", "e")
_RSA_BITS: Final = (2048, 8192)
_LONGEST_EXPONENT: Final = 64
_MOST_KID: Final = 512


@dataclass(frozen=True, slots=True)
class Key:
    """A public key. `algorithm` is the only one that it may be used with, where its owner says so."""

    kind: tuple[str, str | None]
    kid: str | None
    algorithm: str | None
    native: Any = field(repr=False)

    def fits(self, algorithm: str, kid: str | None) -> bool:
        """May it verify this algorithm, for a signature that names `kid`?"""
        same = self.algorithm in {None, algorithm} or {self.algorithm, algorithm} <= {"EdDSA", "Ed25519"}
        return same and self.kind == ALGORITHMS.get(algorithm) and kid in {None, self.kid}


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
        from joserfc import jwk  # late: cryptography is heavy

        kty, curve = kind_of(algorithm)
        makers: dict[str, Any] = {"OKP": jwk.OKPKey, "EC": jwk.ECKey, "RSA": jwk.RSAKey}
        return cls(algorithm, kid, makers[kty].generate_key(curve or _RSA_BITS[0]))

    @classmethod
    def read(cls, text: Secret, *, algorithm: str) -> SigningKey:
        """A key from a private JWK. Raises SignatureError where it is none for this algorithm."""
        data = read_object(text.reveal().encode("utf-8", "replace"), "private key")
        key = _key(data)
        if key is None or "d" not in data or not key.fits(algorithm, None):
            raise SignatureError(f"this is no private key for {algorithm}", code="sign.bad-key")
        return cls(algorithm, key.kid, _native(data))

    def secret(self) -> Secret:
        """The private JWK, to be kept."""
        import json

        return Secret(json.dumps({**self.native.as_dict(private=True), **self._names()}))

    def public(self) -> dict[str, Any]:
        """The public JWK, to be published."""
        plain = self.native.as_dict(private=False)
        return {name: plain[name] for name in _PUBLIC if name in plain} | self._names()

    def _names(self) -> dict[str, str]:
        return {"alg": self.algorithm, "use": "sig"} | ({} if self.kid is None else {"kid": self.kid})


def kind_of(algorithm: str) -> tuple[str, str | None]:
    """Key type and curve of an algorithm. Raises SignatureError for one that is not known."""
    found = ALGORITHMS.get(algorithm)
    if found is None:
        raise SignatureError(
            "this signature algorithm is not allowed",
            code="sign.bad-algorithm",
            hint=f"one of {', '.join(sorted(ALGORITHMS))}",
        )
    return found


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
            raise _bad("a member of the key set is no key")
        if not _PRIVATE.isdisjoint(each):
            raise _bad("the key set publishes a private or shared key", "its owner must replace it at once")
        key = _key(each)
        if key is not None:
            yield key


def _key(data: Mapping[str, Any]) -> Key | None:
    """The key of this JWK; None for one that is not for signatures of ours."""
    kty, curve = data.get("kty"), data.get("crv")
    kind = next((each for each in _KINDS if each[0] == kty and each[1] in {None, str(curve)}), None)
    operations = data.get("key_ops", ["verify"])
    if kind is None or data.get("use", "sig") != "sig" or not {"verify", "sign"} & _texts(operations):
        return None
    kid, algorithm = data.get("kid"), data.get("alg")
    if not _short(kid) or not _short(algorithm):
        raise _bad("kid and alg of a key are short texts")
    plain = {name: data[name] for name in _PUBLIC if name in data}
    return Key(kind, kid, algorithm, _native(plain))


def _native(data: Mapping[str, Any]) -> Any:
    from joserfc import errors, jwk  # late: cryptography is heavy

    plain = {name: data[name] for name in (*_PUBLIC, *_PRIVATE) if name in data}
    if not all(isinstance(value, str) for value in plain.values()):
        raise _bad("a key's members are texts")
    if plain["kty"] == "RSA":
        _check_rsa(plain.get("n", ""), plain.get("e", ""))
    try:
        return jwk.import_key(plain)
    except (errors.JoseError, ValueError, TypeError, KeyError, OverflowError) as error:
        # the library's text may quote the key
        raise _bad(f"a key cannot be read ({type(error).__name__})") from None


def _check_rsa(modulus: str, exponent: str) -> None:
    """Raises for a key that is weak, or so large that each use is work."""
    least, most = _RSA_BITS
    # all of it is looked at: a modulus may begin with zeros
    short = len(modulus) <= most // 4 and len(exponent) <= _LONGEST_EXPONENT
    n = int.from_bytes(decode(modulus, "modulus"), "big") if short else 0
    e = int.from_bytes(decode(exponent, "exponent"), "big") if short else 0
    if not least <= n.bit_length() <= most or e < 3 or e.bit_length() > 32:
        raise SignatureError(
            f"an RSA key has {least} to {most} bits and a small exponent",
            code="sign.weak-key",
            hint="RFC 7518 3.3 asks for 2048 bits or more",
        )


def _texts(values: object) -> set[str]:
    return {each for each in values if isinstance(each, str)} if isinstance(values, list) else set()


def _short(value: object) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= _MOST_KID)


def _bad(message: str, hint: str | None = None) -> SignatureError:
    return SignatureError(message, code="sign.bad-key", hint=hint)
