"""One public key as a JWK (RFC 7517): which kinds are known, how it is read, its thumbprint (RFC 7638)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from onym._lazy import require
from onym.errors import SignatureError
from onym.sign._strict import decode

__all__ = [
    "ALGORITHMS",
    "PRIVATE",
    "PUBLIC",
    "RECEIPT_ALGORITHMS",
    "RSA_BITS",
    "Key",
    "bad_key",
    "kind_of",
    "model",
    "native_key",
    "texts",
    "thumbprint",
]

Kind = tuple[str, str | None]

#: algorithm -> (kty, crv). EdDSA is the older name of Ed25519 here (RFC 9864 2.2)
ALGORITHMS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "Ed25519": ("OKP", "Ed25519"),
        "EdDSA": ("OKP", "Ed25519"),
        "ES256": ("EC", "P-256"),
        "RS256": ("RSA", None),
        "PS256": ("RSA", None),
    }
)
#: the same for receipts (AIIP/HTTPS v1 3.9): no RS256, and two more that are optional
RECEIPT_ALGORITHMS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "Ed25519": ("OKP", "Ed25519"),
        "ES256": ("EC", "P-256"),
        "ES384": ("EC", "P-384"),
        "PS256": ("RSA", None),
    }
)
#: RFC 7518 6.2.2, 6.3.2, 6.4: what only a private or shared key has
PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
PUBLIC: Final = ("kty", "crv", "x", "y", "n", "e")
RSA_BITS: Final = (2048, 8192)
#: RFC 7638 3.2, RFC 8037 2: what a thumbprint is taken over
_IDENTITY: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}
)
_LONGEST_EXPONENT: Final = 64


@dataclass(frozen=True, slots=True)
class Key:
    """A public key. `algorithm` is the only one that it may be used with, where its owner says so.

    `starts` and `ends` bound the signatures that it makes, in seconds since the epoch, where its set says so.
    """

    kind: Kind
    kid: str | None
    algorithm: str | None
    native: Any = field(repr=False)
    starts: float | None = None
    ends: float | None = None

    def fits(self, algorithm: str, kid: str | None) -> bool:
        """May it verify this algorithm, for a signature that names `kid`?"""
        same = self.algorithm in {None, algorithm} or {self.algorithm, algorithm} <= {"EdDSA", "Ed25519"}
        return same and self.kind == ALGORITHMS.get(algorithm) and kid in {None, self.kid}

    def holds(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Did this key sign these octets? The algorithm must be one of its kind."""
        try:
            return bool(model(algorithm).verify(signed, signature, self.native))
        except ValueError:  # a signature of a form that the library cannot take
            return False


def kind_of(algorithm: str) -> Kind:
    """Key type and curve of an algorithm. Raises SignatureError for one that is not known."""
    found = ALGORITHMS.get(algorithm) or RECEIPT_ALGORITHMS.get(algorithm)
    if found is None:
        known = sorted({*ALGORITHMS, *RECEIPT_ALGORITHMS})
        raise SignatureError(
            "this signature algorithm is not allowed",
            code="sign.bad-algorithm",
            hint=f"one of {', '.join(known)}",
        )
    return found


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """The SHA-256 thumbprint of a public or private key (RFC 7638, RFC 8037 2). Raises SignatureError."""
    require("joserfc", "ai")
    from joserfc.jwk import thumbprint as taken  # late: cryptography is heavy

    names = _IDENTITY.get(str(jwk.get("kty")), ())
    if not names or not all(isinstance(jwk.get(name), str) for name in names):
        raise bad_key("a thumbprint is of an EC, OKP or RSA key with all its members")
    return taken({name: jwk[name] for name in names})


def native_key(data: Mapping[str, Any]) -> Any:
    """The library's key of a JWK, public or private. Raises SignatureError, and never quotes the key."""
    require("joserfc", "ai")
    from joserfc import errors, jwk  # late: cryptography is heavy

    plain = {name: data[name] for name in (*PUBLIC, *PRIVATE) if name in data}
    if not all(isinstance(value, str) for value in plain.values()):
        raise bad_key("a key's members are texts")
    if plain["kty"] == "RSA":
        _check_rsa(plain.get("n", ""), plain.get("e", ""))
    try:
        return jwk.import_key(plain)
    except (errors.JoseError, ValueError, TypeError, KeyError, OverflowError) as error:
        # the library's text may quote the key
        raise bad_key(f"a key cannot be read ({type(error).__name__})") from None


def model(algorithm: str) -> Any:
    """What the library signs and verifies with."""
    require("joserfc", "ai")
    from joserfc.jws import JWSRegistry  # late: cryptography is heavy

    return JWSRegistry.algorithms[algorithm]


def texts(values: object) -> set[str]:
    """The texts of a list; none of anything else."""
    return {each for each in values if isinstance(each, str)} if isinstance(values, list) else set()


def bad_key(message: str, hint: str | None = None) -> SignatureError:
    """The error for a key or a set of keys that cannot be used."""
    return SignatureError(message, code="sign.bad-key", hint=hint)


def _check_rsa(modulus: str, exponent: str) -> None:
    """Raises for a key that is weak, or so large that each use is work."""
    least, most = RSA_BITS
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
