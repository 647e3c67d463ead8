"""JWKs (RFC 7517), thumbprints (RFC 7638), key sets, the keys of an ai:// authority, and signing keys.

A key never serves an algorithm that is not its own. `AuthorityKeys` are the keys of one ai:// authority, by
the stricter rules of AIIP/HTTPS v1 3.9: the name of such a key is its thumbprint, so no set can hold two
keys of one name, and no set can give another key a trusted name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Protocol

from onym._lazy import require_extra
from onym.errors import SignatureError
from onym.sign.algorithms import (
    ALGORITHMS,
    COORDINATE_SIZES,
    RECEIPT_ALGORITHMS,
    TOKEN_ALGORITHMS,
    KeyKind,
    normalize_algorithm,
)
from onym.sign.encoding import decode_base64url, parse_json_object
from onym.uri.secret import Secret

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

    kind: KeyKind
    kid: str | None
    algorithm: str | None
    native: Any = field(repr=False)
    starts: float | None = None
    ends: float | None = None

    def can_verify(self, algorithm: str, kid: str | None) -> bool:
        """May it verify this algorithm, for a signature that names `kid`?"""
        row = ALGORITHMS.get(algorithm)
        if row is None or not row.tokens or self.kind != row.kind or kid not in {None, self.kid}:
            return False
        return self.algorithm is None or normalize_algorithm(self.algorithm) == normalize_algorithm(algorithm)

    def verify(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Did this key sign these octets? The algorithm must be one of its kind."""
        try:
            return bool(get_jws_model(algorithm).verify(signed, signature, self.native))
        except ValueError:  # a signature of a form that the library cannot take
            return False


def get_kind(algorithm: str) -> KeyKind:
    """Key type and curve of an algorithm. Raises SignatureError for one that is not known."""
    row = ALGORITHMS.get(algorithm)
    if row is None:
        raise SignatureError(
            "this signature algorithm is not allowed",
            code="sign.bad-algorithm",
            hint=f"one of {', '.join(sorted(ALGORITHMS))}",
        )
    return row.kind


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """The SHA-256 thumbprint of a public or private key (RFC 7638, RFC 8037 2). Raises SignatureError."""
    require_extra("joserfc", "ai")
    from joserfc.jwk import thumbprint as taken  # late: cryptography is heavy

    names = _IDENTITY.get(str(jwk.get("kty")), ())
    if not names or not all(isinstance(jwk.get(name), str) for name in names):
        raise make_key_error("a thumbprint is of an EC, OKP or RSA key with all its members")
    return taken({name: jwk[name] for name in names})


def import_native_key(data: Mapping[str, Any]) -> Any:
    """The library's key of a JWK, public or private. Raises SignatureError, and never quotes the key."""
    require_extra("joserfc", "ai")
    from joserfc import errors, jwk  # late: cryptography is heavy

    plain = {name: data[name] for name in (*PUBLIC, *PRIVATE) if name in data}
    if not all(isinstance(value, str) for value in plain.values()):
        raise make_key_error("a key's members are texts")
    if plain["kty"] == "RSA":
        _require_strong_rsa(plain.get("n", ""), plain.get("e", ""))
    try:
        return jwk.import_key(plain)
    except (errors.JoseError, ValueError, TypeError, KeyError, OverflowError) as error:
        # the library's text may quote the key
        raise make_key_error(f"a key cannot be read ({type(error).__name__})") from None


def get_jws_model(algorithm: str) -> Any:
    """What the library signs and verifies with."""
    require_extra("joserfc", "ai")
    from joserfc.jws import JWSRegistry  # late: cryptography is heavy

    return JWSRegistry.algorithms[algorithm]


def collect_texts(values: object) -> set[str]:
    """The texts of a list; none of anything else."""
    return {each for each in values if isinstance(each, str)} if isinstance(values, list) else set()


def make_key_error(message: str, hint: str | None = None) -> SignatureError:
    """The error for a key or a set of keys that cannot be used."""
    return SignatureError(message, code="sign.bad-key", hint=hint)


def _require_strong_rsa(modulus: str, exponent: str) -> None:
    """Raises for a key that is weak, or so large that each use is work."""
    least, most = RSA_BITS
    # all of it is looked at: a modulus may begin with zeros
    short = len(modulus) <= most // 4 and len(exponent) <= _LONGEST_EXPONENT
    n = int.from_bytes(decode_base64url(modulus, "modulus"), "big") if short else 0
    e = int.from_bytes(decode_base64url(exponent, "exponent"), "big") if short else 0
    if not least <= n.bit_length() <= most or e < 3 or e.bit_length() > 32:
        raise SignatureError(
            f"an RSA key has {least} to {most} bits and a small exponent",
            code="sign.weak-key",
            hint="RFC 7518 3.3 asks for 2048 bits or more",
        )


#: octets and keys of a set that is in force
MAX_AUTHORITY_KEY_SET: Final = 64 * 1024
MAX_AUTHORITY_KEYS: Final = 20
#: keys of a history, which grows by one with each rotation; its octets are four times a set's
MAX_HISTORY: Final = 400
#: seconds that two clocks may be apart
LEEWAY: Final = 60.0
_LATEST: Final = 253402300799  # the last second of 9999, the last that a datetime holds
_P25519: Final = 2**255 - 19
#: y of points of small order (RFC 8032 5.1): 0, 1, -1, and this of order 8 and its negative
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER: Final = frozenset({0, 1, _P25519 - 1, _ORDER_8, _P25519 - _ORDER_8})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityKeys:
    """Public keys of one authority by their kid. `ignored` says for people which do not count, and why."""

    keys: Mapping[str, Key] = field(default_factory=dict)
    revoked: frozenset[str] = frozenset()
    ignored: tuple[str, ...] = ()

    @property
    def kids(self) -> frozenset[str]:
        """The thumbprints of the keys that may verify."""
        return frozenset(self.keys)

    def find(self, kid: str, algorithm: str, at: float) -> Key:
        """The key of that name, for a signature of this algorithm that was made `at` (seconds).

        Raises SignatureError as `named` does, and `sign.key-not-in-force` outside the key's own time.
        """
        key = self.named(kid, algorithm)
        if not (key.starts or 0) - LEEWAY <= at <= (_LATEST if key.ends is None else key.ends) + LEEWAY:
            raise SignatureError("the key was not in force at that time", code="sign.key-not-in-force")
        return key

    def named(self, kid: str, algorithm: str) -> Key:
        """The key of that name, at any time. `EdDSA` is the older name of Ed25519.

        Raises SignatureError: `sign.revoked-key`, `sign.unknown-key`, and `sign.bad-algorithm` where the key
        is for another one.
        """
        if kid in self.revoked:
            raise SignatureError(
                "the key was revoked by its owner",
                code="sign.revoked-key",
                hint="nothing that it signed counts: whoever has it can write any date",
            )
        key = self.keys.get(kid)
        if key is None:
            raise SignatureError(
                "the authority's key set has no such key",
                code="sign.unknown-key",
                hint="has the authority changed keys? Read its set again",
            )
        name = normalize_algorithm(algorithm)
        if name not in RECEIPT_ALGORITHMS or key.algorithm != name or key.kind != ALGORITHMS[name].kind:
            raise SignatureError("the key is for another algorithm", code="sign.bad-algorithm")
        return key


def read_authority_keys(
    octets: bytes, *, only: Collection[str] | None = None, history: bool = False
) -> AuthorityKeys:
    """The keys of an authority's JWK Set, which came from its anchor. Raises SignatureError.

    `only` are the thumbprints that a registry allows, where there is one. A `history` may be longer.
    Keys without kid and alg, for other uses or algorithms, or with a kid that is not their thumbprint are
    left out; a private, shared, weak or broken key, or one kid twice, spoils the whole set.
    """
    limit, most = (
        (4 * MAX_AUTHORITY_KEY_SET, MAX_HISTORY) if history else (MAX_AUTHORITY_KEY_SET, MAX_AUTHORITY_KEYS)
    )
    if len(octets) > limit:
        raise SignatureError(f"the key set is longer than {limit} octets", code="sign.too-large")
    found = parse_json_object(octets, "key set")
    members, revoked = found.get("keys"), found.get("revoked", [])
    if not isinstance(members, list) or len(members) > most:
        raise make_key_error(f"the key set is no list of at most {most} keys")
    if not isinstance(revoked, list) or len(collect_texts(revoked)) < len(revoked):
        raise make_key_error("revoked is a list of kids, each once")
    keys: dict[str, Key] = {}
    withdrawn, ignored = collect_texts(revoked), []
    for number, each in enumerate(members, 1):
        _require_public(each)
        why = _find_rejection(each) or ("is not allowed by the registry" if _is_foreign(each, only) else None)
        if why is not None:
            ignored.append(f"key {number} {why}")
            continue
        if each["kid"] in keys:
            raise make_key_error("the key set has one kid twice")
        keys[each["kid"]] = _make_authority_key(each)
        if "revoked" in each:  # as the histories of OpenID Federation say it
            withdrawn.add(each["kid"])
    kept = {kid: key for kid, key in keys.items() if kid not in withdrawn}
    return AuthorityKeys(keys=MappingProxyType(kept), revoked=frozenset(withdrawn), ignored=tuple(ignored))


def _require_public(data: object) -> None:
    if not isinstance(data, dict):
        raise make_key_error("a member of the key set is no key")
    if not PRIVATE.isdisjoint(data) or data.get("kty") == "oct":
        raise make_key_error(
            "the key set publishes a private or shared key", "its owner must replace it at once"
        )


def _find_rejection(data: Mapping[str, Any]) -> str | None:
    """Why a key does not count, as the end of a sentence; None for one that does."""
    kid, algorithm = data.get("kid"), data.get("alg")
    if not isinstance(kid, str) or not isinstance(algorithm, str):
        return "has no kid or no alg"
    if algorithm not in RECEIPT_ALGORITHMS:
        return "is for an algorithm that is not for receipts"
    if data.get("use", "sig") != "sig" or "verify" not in collect_texts(data.get("key_ops", ["verify"])):
        return "is not for verifying signatures"
    if (data.get("kty"), data.get("crv")) != ALGORITHMS[algorithm].kind:
        return "is not of its algorithm's kind"
    if not all(_is_time(data[name]) for name in ("nbf", "exp") if name in data):
        return "has a time that is no number of seconds"
    return None if thumbprint(data) == kid else "has a kid that is not its thumbprint"


def _is_foreign(data: Mapping[str, Any], only: Collection[str] | None) -> bool:
    return only is not None and data["kid"] not in only


def _make_authority_key(data: Mapping[str, Any]) -> Key:
    kind = ALGORITHMS[data["alg"]].kind
    if kind[1] is None:
        _require_odd(data["n"], data["e"])
    else:
        _require_valid_point(kind[1], *(data[name] for name in ("x", "y") if name in data))
    native = import_native_key({name: data[name] for name in PUBLIC if name in data})
    return Key(kind, data["kid"], data["alg"], native, starts=data.get("nbf"), ends=data.get("exp"))


def _require_odd(*numbers: str) -> None:
    """Modulus and exponent of RSA: an even one is none."""
    if not all((decode_base64url(each, "key") or b"\0")[-1] & 1 for each in numbers):
        raise SignatureError("an RSA key has an odd modulus and exponent", code="sign.weak-key")


def _require_valid_point(curve: str, *coordinates: str) -> None:
    """Full length (RFC 7518 6.2.1.2), and for Ed25519 a canonical point that is not of small order."""
    octets = [decode_base64url(each, "key") for each in coordinates]
    if any(len(each) != COORDINATE_SIZES[curve] for each in octets):
        raise make_key_error("a coordinate of a key has the length of its curve")
    if curve == "Ed25519":
        y = int.from_bytes(octets[0], "little") & (2**255 - 1)
        if y >= _P25519 or y in _SMALL_ORDER:
            raise SignatureError("an Ed25519 key of small order holds for anything", code="sign.weak-key")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LATEST


#: octets of a key set
MAX_KEY_SET: Final = 256 * 1024
MAX_KEYS: Final = 64
_KEY_KINDS: Final = frozenset(ALGORITHMS[name].kind for name in TOKEN_ALGORITHMS)
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
        return tuple(key for key in self.keys if key.can_verify(algorithm, kid))


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key. It signs with `algorithm` alone; printed, it shows nothing of itself."""

    algorithm: str
    kid: str | None
    native: Any = field(repr=False)

    @classmethod
    def generate(cls, algorithm: str, *, kid: str | None = None) -> SigningKey:
        """A new key for this algorithm. Raises SignatureError for one that is not known."""
        require_extra("joserfc", "ai")
        from joserfc import jwk  # late: cryptography is heavy

        kty, curve = get_kind(algorithm)
        makers: dict[str, Any] = {"OKP": jwk.OKPKey, "EC": jwk.ECKey, "RSA": jwk.RSAKey}
        return cls(algorithm, kid, makers[kty].generate_key(curve or RSA_BITS[0]))

    @classmethod
    def from_jwk(cls, text: Secret, *, algorithm: str) -> SigningKey:
        """A key from a private JWK. Raises SignatureError where it is none for this algorithm."""
        data = parse_json_object(text.reveal().encode("utf-8", "replace"), "private key")
        kind = get_kind(algorithm)
        key = _parse_key(data, frozenset({kind}))
        own = algorithm if key is None or key.algorithm is None else key.algorithm
        if key is None or "d" not in data or normalize_algorithm(own) != normalize_algorithm(algorithm):
            raise SignatureError(f"this is no private key for {algorithm}", code="sign.bad-key")
        return cls(algorithm, key.kid, import_native_key(data))

    def with_thumbprint(self) -> SigningKey:
        """The same key, its kid the thumbprint of its public part (RFC 7638), as receipts ask for."""
        return replace(self, kid=thumbprint(self.native.as_dict(private=False)))

    def sign(self, octets: bytes) -> bytes:
        """The signature over these octets."""
        return bytes(get_jws_model(self.algorithm).sign(octets, self.native))

    def secret(self) -> Secret:
        """The private JWK, to be kept."""
        import json

        return Secret(json.dumps({**self.native.as_dict(private=True), **self._get_names()}))

    def public(self) -> dict[str, Any]:
        """The public JWK, to be published."""
        plain = self.native.as_dict(private=False)
        return {name: plain[name] for name in PUBLIC if name in plain} | self._get_names()

    def _get_names(self) -> dict[str, str]:
        return {"alg": self.algorithm, "use": "sig"} | ({} if self.kid is None else {"kid": self.kid})


def read_keys(octets: bytes) -> KeySet:
    """The usable keys of a JWK Set. Raises SignatureError.

    Keys of other types, curves and uses are left out (RFC 7517 5); a private or shared key, a weak RSA key
    or a broken one spoils the set.
    """
    if len(octets) > MAX_KEY_SET:
        raise SignatureError(f"the key set is longer than {MAX_KEY_SET} octets", code="sign.too-large")
    found = parse_json_object(octets, "key set").get("keys")
    if not isinstance(found, list) or len(found) > MAX_KEYS:
        raise SignatureError(f"the key set is no list of at most {MAX_KEYS} keys", code="sign.bad-key")
    return KeySet(tuple(_iter_public_keys(found)))


def _iter_public_keys(found: Iterable[object]) -> Iterable[Key]:
    for each in found:
        if not isinstance(each, dict):
            raise make_key_error("a member of the key set is no key")
        if not PRIVATE.isdisjoint(each):
            raise make_key_error(
                "the key set publishes a private or shared key", "its owner must replace it at once"
            )
        key = _parse_key(each, _KEY_KINDS)
        if key is not None:
            yield key


def _parse_key(data: Mapping[str, Any], kinds: frozenset[tuple[str, str | None]]) -> Key | None:
    """The key of this JWK; None for one that is not of these kinds, or not for signatures."""
    kty, curve = data.get("kty"), data.get("crv")
    kind = next((each for each in kinds if each[0] == kty and each[1] in {None, str(curve)}), None)
    operations = data.get("key_ops", ["verify"])
    if kind is None or data.get("use", "sig") != "sig" or not {"verify", "sign"} & collect_texts(operations):
        return None
    kid, algorithm = data.get("kid"), data.get("alg")
    if not _is_short(kid) or not _is_short(algorithm):
        raise make_key_error("kid and alg of a key are short texts")
    plain = {name: data[name] for name in PUBLIC if name in data}
    return Key(kind, kid, algorithm, import_native_key(plain))


def _is_short(value: object) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= _MOST_KID)
