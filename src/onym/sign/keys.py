"""Signature algorithms, JWKs (RFC 7517), thumbprints, the keys of an ai:// authority, and signing keys.

Every list of algorithms is derived from one table. A key is used only with its own algorithm. The name of a
key of an authority is its thumbprint (AIIP/HTTPS v1 3.9), so a set cannot give a trusted name to another key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeGuard

from onym._lazy import require_extra
from onym.common import text as strict_text
from onym.errors import SignatureError
from onym.uri.secret import Secret

KeyKind = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One algorithm of JWS, by its name in RFC 7518, RFC 8037 or RFC 9864.

    `kty` and `curve` are those of its keys, `kind` is the pair. `hash_name` is the hash of the signature, as
    `hashlib` names it, and `strength` its security in bits. `tokens`, `id_tokens`, `receipts` and `cards` (of
    A2A agents) tell what it may sign, and `usual` whether every implementation of AIIP/HTTPS v1 has it (3.9).
    A PKCS #11 device needs the `device_key_type` and the `device_mechanism`.
    """

    name: str
    kty: str
    curve: str | None
    hash_name: str
    strength: int
    device_key_type: str = ""
    device_mechanism: str = ""
    _: KW_ONLY
    tokens: bool = True
    id_tokens: bool = False
    receipts: bool = True
    cards: bool = False
    usual: bool = False

    @property
    def kind(self) -> KeyKind:
        """Key type and curve."""
        return self.kty, self.curve


_ROWS: Final = (
    Algorithm("Ed25519", "OKP", "Ed25519", "sha512", 128, "EC_EDWARDS", "EDDSA", id_tokens=True, usual=True),
    # the older name of Ed25519 (RFC 9864 2.2), the only one that the SDK of A2A knows
    Algorithm("EdDSA", "OKP", "Ed25519", "sha512", 128, id_tokens=True, cards=True, receipts=False),
    Algorithm("ES256", "EC", "P-256", "sha256", 128, "EC", "ECDSA", id_tokens=True, cards=True, usual=True),
    Algorithm("ES384", "EC", "P-384", "sha384", 192, "EC", "ECDSA", tokens=False),
    Algorithm("RS256", "RSA", None, "sha256", 112, id_tokens=True, cards=True, receipts=False),
    Algorithm("PS256", "RSA", None, "sha256", 112, "RSA", "SHA256_RSA_PKCS_PSS", cards=True),
)

ALGORITHMS: Final[Mapping[str, Algorithm]] = MappingProxyType({row.name: row for row in _ROWS})
#: names for tokens and other JWS, for ID tokens, for receipts and for agent cards
TOKEN_ALGORITHMS: Final = tuple(row.name for row in _ROWS if row.tokens)
ID_TOKEN_ALGORITHMS: Final = tuple(row.name for row in _ROWS if row.id_tokens)
RECEIPT_ALGORITHMS: Final = tuple(row.name for row in _ROWS if row.receipts)
CARD_ALGORITHMS: Final = tuple(row.name for row in _ROWS if row.cards)
USUAL_ALGORITHMS: Final = tuple(row.name for row in _ROWS if row.usual)
#: bytes of a coordinate of a key
COORDINATE_SIZES: Final[Mapping[str, int]] = MappingProxyType({"P-256": 32, "P-384": 48, "Ed25519": 32})


def normalize_algorithm(name: str) -> str:
    """The current name of an algorithm: `EdDSA` is the older name of `Ed25519`."""
    return "Ed25519" if name == "EdDSA" else name


def decode_base64url(text: str, subject: str) -> bytes:
    """Decode base64url. Raises SignatureError `sign.malformed`, which names the subject."""
    try:
        return strict_text.decode_base64url(text)
    except ValueError as error:
        raise SignatureError(f"the {subject} {error}", code="sign.malformed") from None


def parse_json_object(content: bytes, subject: str) -> dict[str, Any]:
    """Parse a JSON object without duplicate members. Raises SignatureError `sign.malformed`."""
    try:
        return strict_text.parse_json_object(content)
    except ValueError as error:
        hint = "check that this is the right file or token"
        raise SignatureError(f"the {subject} {error}", code="sign.malformed", hint=hint) from None


#: RFC 7518 6.2.2, 6.3.2, 6.4: the members of private and shared keys only
PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
PUBLIC: Final = ("kty", "crv", "x", "y", "n", "e")
RSA_BITS: Final = (2048, 8192)
#: RFC 7638 3.2, RFC 8037 2: the members in a thumbprint
_IDENTITY: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}
)
_LONGEST_EXPONENT: Final = 64


@dataclass(frozen=True, slots=True)
class Key:
    """A public key. `algorithm`, if its owner sets one, is the only algorithm that it may be used with.

    `starts` and `ends`, if its set gives them, limit the time of its signatures, in seconds since the epoch.
    """

    kind: KeyKind
    kid: str | None
    algorithm: str | None
    native: Any = field(repr=False)
    starts: float | None = None
    ends: float | None = None

    def can_verify(self, algorithm: str, kid: str | None) -> bool:
        """Whether the key may verify a signature of this algorithm that names `kid`."""
        row = ALGORITHMS.get(algorithm)
        if row is None or not row.tokens or self.kind != row.kind or kid not in {None, self.kid}:
            return False
        return self.algorithm is None or normalize_algorithm(self.algorithm) == normalize_algorithm(algorithm)

    def verify(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Whether this key made the signature. The algorithm must be for keys of its kind."""
        try:
            return bool(get_jws_model(algorithm).verify(signed, signature, self.native))
        except ValueError:  # the signature has a form that the library rejects
            return False


def get_kind(algorithm: str) -> KeyKind:
    """Key type and curve of an algorithm. Raises SignatureError for an unknown algorithm."""
    row = ALGORITHMS.get(algorithm)
    if row is None:
        hint = f"use one of {', '.join(sorted(ALGORITHMS))}"
        raise SignatureError("the algorithm is not supported", code="sign.bad-algorithm", hint=hint)
    return row.kind


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """The SHA-256 thumbprint of a public or private key (RFC 7638, RFC 8037 2). Raises SignatureError."""
    require_extra("joserfc", "ai")
    from joserfc.jwk import thumbprint as taken  # late: cryptography is heavy

    names = _IDENTITY.get(str(jwk.get("kty")), ())
    if not names or not all(isinstance(jwk.get(name), str) for name in names):
        raise make_key_error("only an EC, OKP or RSA key with all its members has a thumbprint")
    return taken({name: jwk[name] for name in names})


def import_native_key(data: Mapping[str, Any]) -> Any:
    """The library's key of a JWK, public or private. Raises SignatureError, which never quotes the key."""
    require_extra("joserfc", "ai")
    from joserfc import errors, jwk  # late: cryptography is heavy

    plain = {name: data[name] for name in (*PUBLIC, *PRIVATE) if name in data}
    if not all(isinstance(value, str) for value in plain.values()):
        raise make_key_error("the members of a key must be strings")
    if plain["kty"] == "RSA":
        _require_strong_rsa(plain.get("n", ""), plain.get("e", ""))
    try:
        return jwk.import_key(plain)
    except (errors.JoseError, ValueError, TypeError, KeyError, OverflowError) as error:
        # the library's message may quote the key
        raise make_key_error(f"a key is invalid ({type(error).__name__})") from None


@cache
def get_jws_model(algorithm: str) -> Any:
    """The library's implementation of an algorithm."""
    require_extra("joserfc", "ai")
    from joserfc.jws import JWSRegistry  # late: cryptography is heavy

    return JWSRegistry.algorithms[algorithm]


def collect_texts(values: object) -> set[str]:
    """The strings of a list; empty for other values."""
    return {value for value in values if isinstance(value, str)} if isinstance(values, list) else set()


def make_key_error(message: str, hint: str | None = None) -> SignatureError:
    """The error for an unusable key or key set."""
    return SignatureError(message, code="sign.bad-key", hint=hint)


def _require_strong_rsa(modulus: str, exponent: str) -> None:
    """Raise for a key that is weak, or so large that it is slow."""
    least, most = RSA_BITS
    # the length of the text is not enough: a modulus may begin with zeros
    short = len(modulus) <= most // 4 and len(exponent) <= _LONGEST_EXPONENT
    n = int.from_bytes(decode_base64url(modulus, "modulus"), "big") if short else 0
    e = int.from_bytes(decode_base64url(exponent, "exponent"), "big") if short else 0
    if not least <= n.bit_length() <= most or e < 3 or e.bit_length() > 32:
        message = f"an RSA key must have {least} to {most} bits and a small exponent"
        hint = "RFC 7518 3.3 requires 2048 bits or more"
        raise SignatureError(message, code="sign.weak-key", hint=hint)
    if has_roca_fingerprint(n):
        message = "the RSA key comes from a faulty chip, and its private key can be computed (ROCA)"
        raise SignatureError(message, code="sign.weak-key", hint="Its owner must replace it: CVE-2017-15361.")


#: the odd primes up to 167; for 17 of them not every number is a power of 65537
_ROCA_PRIMES: Final = (
    *(3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101),
    *(103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167),
)


def has_roca_fingerprint(modulus: int) -> bool:
    """Whether an RSA modulus was made by the faulty generator of CVE-2017-15361.

    Its primes are powers of 65537 modulo many small primes, and so is their product (Nemec and others, "The
    Return of Coppersmith's Attack", 2017). One good modulus in 2**27 has this property too.
    """
    return all(modulus % prime in powers for prime, powers in _list_roca_powers())


@lru_cache(maxsize=1)
def _list_roca_powers() -> tuple[tuple[int, frozenset[int]], ...]:
    """The small primes, and the powers of 65537 modulo each of them."""
    rows = ((p, frozenset(pow(65537, power, p) for power in range(p - 1))) for p in _ROCA_PRIMES)
    return tuple((prime, powers) for prime, powers in rows if len(powers) < prime - 1)


#: bytes and keys of a set that is in force
MAX_AUTHORITY_KEY_SET: Final = 64 * 1024
MAX_AUTHORITY_KEYS: Final = 20
#: keys of a history, which grows by one with each rotation; it may have four times the bytes of a set
MAX_HISTORY: Final = 400
#: the allowed difference of two clocks in seconds
LEEWAY: Final = 60.0
_LATEST: Final = 253402300799  # the last second of the year 9999, the limit of datetime
_P25519: Final = 2**255 - 19
#: y of points of small order (RFC 8032 5.1): 0, 1, -1, and this of order 8 and its negative
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER: Final = frozenset({0, 1, _P25519 - 1, _ORDER_8, _P25519 - _ORDER_8})


#: the hint for a key set that may be too old
FETCH_AGAIN: Final = "the authority may have changed keys: fetch its key set again"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityKeys:
    """Public keys of one authority by their kid. `ignored` tells people which keys are not used, and why."""

    keys: Mapping[str, Key] = field(default_factory=dict)
    revoked: frozenset[str] = frozenset()
    ignored: tuple[str, ...] = ()

    @property
    def kids(self) -> frozenset[str]:
        """The thumbprints of the keys that may verify."""
        return frozenset(self.keys)

    def find(self, kid: str, algorithm: str, at: float) -> Key:
        """The key with this kid, for a signature of this algorithm that was made `at` (seconds).

        Raises SignatureError as `named` does, and `sign.key-not-in-force` outside the key's time.
        """
        key = self.named(kid, algorithm)
        if not (key.starts or 0) - LEEWAY <= at <= (_LATEST if key.ends is None else key.ends) + LEEWAY:
            raise SignatureError("the key was not in force at that time", code="sign.key-not-in-force")
        return key

    def named(self, kid: str, algorithm: str) -> Key:
        """The key with this kid, at any time. `EdDSA` is the older name of Ed25519.

        Raises SignatureError: `sign.revoked-key`, `sign.unknown-key`, and `sign.bad-algorithm` if the key is
        for another algorithm.
        """
        if kid in self.revoked:
            hint = "do not trust any of its signatures: the holder of a stolen key can write any date"
            raise SignatureError("the key was revoked by its owner", code="sign.revoked-key", hint=hint)
        key = self.keys.get(kid)
        if key is None:
            message = "the authority's key set has no such key"
            raise SignatureError(message, code="sign.unknown-key", hint=FETCH_AGAIN)
        name = normalize_algorithm(algorithm)
        if name not in RECEIPT_ALGORITHMS or key.algorithm != name or key.kind != ALGORITHMS[name].kind:
            raise SignatureError("the key is for another algorithm", code="sign.bad-algorithm")
        return key


def read_authority_keys(
    content: bytes, *, only: Collection[str] | None = None, history: bool = False
) -> AuthorityKeys:
    """Read the JWK Set of an authority, which came from its anchor. Raises SignatureError.

    `only` are the thumbprints that a registry allows, if there is one. A `history` may be longer. Keys
    without kid and alg, for other uses or algorithms, or with a kid that is not their thumbprint are ignored.
    A private, shared, weak or invalid key, or a repeated kid, makes the whole set invalid.
    """
    limit, most = (
        (4 * MAX_AUTHORITY_KEY_SET, MAX_HISTORY) if history else (MAX_AUTHORITY_KEY_SET, MAX_AUTHORITY_KEYS)
    )
    document, members = _parse_key_set(content, limit, most)
    revoked = document.get("revoked", [])
    if not isinstance(revoked, list) or len(collect_texts(revoked)) < len(revoked):
        raise make_key_error("revoked must be a list of different kids")
    keys: dict[str, Key] = {}
    withdrawn, ignored = collect_texts(revoked), []
    for number, member in enumerate(members, 1):
        _require_public(member, shared=True)
        reason = _find_rejection(member)
        if reason is None and only is not None and member["kid"] not in only:
            reason = "is not allowed by the registry"
        if reason is not None:
            ignored.append(f"key {number} {reason}")
            continue
        if member["kid"] in keys:
            raise make_key_error("the key set has one kid twice")
        keys[member["kid"]] = _make_authority_key(member)
        if "revoked" in member:  # as in the histories of OpenID Federation
            withdrawn.add(member["kid"])
    usable = {kid: key for kid, key in keys.items() if kid not in withdrawn}
    return AuthorityKeys(keys=MappingProxyType(usable), revoked=frozenset(withdrawn), ignored=tuple(ignored))


def _parse_key_set(content: bytes, limit: int, most: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A JWK Set and its members."""
    if len(content) > limit:
        raise SignatureError(f"the key set is longer than {limit} bytes", code="sign.too-large")
    document = parse_json_object(content, "key set")
    members = document.get("keys")
    if not isinstance(members, list) or len(members) > most:
        raise make_key_error(f"the key set is not a list of at most {most} keys")
    return document, members


def _require_public(data: object, *, shared: bool = False) -> None:
    """Raise unless a member of a set is a key without private members, with `shared` also for kty oct."""
    if not isinstance(data, dict):
        raise make_key_error("a member of the key set is not a key")
    if not PRIVATE.isdisjoint(data) or (shared and data.get("kty") == "oct"):
        hint = "its owner must replace it at once"
        raise make_key_error("the key set publishes a private or shared key", hint)


def _find_rejection(data: Mapping[str, Any]) -> str | None:
    """Why a key is ignored, as the end of a sentence; None for a usable key."""
    kid, algorithm = data.get("kid"), data.get("alg")
    if not isinstance(kid, str) or not isinstance(algorithm, str):
        return "has no kid or no alg"
    if algorithm not in RECEIPT_ALGORITHMS:
        return "is for an algorithm that receipts do not use"
    if data.get("use", "sig") != "sig" or "verify" not in collect_texts(data.get("key_ops", ["verify"])):
        return "is not for verifying signatures"
    if (data.get("kty"), data.get("crv")) != ALGORITHMS[algorithm].kind:
        return "is not of its algorithm's kind"
    if not all(is_time(data[name]) for name in ("nbf", "exp") if name in data):
        return "has a time that is not a number of seconds"
    return None if thumbprint(data) == kid else "has a kid that is not its thumbprint"


def _make_authority_key(data: Mapping[str, Any]) -> Key:
    kind = ALGORITHMS[data["alg"]].kind
    if kind[1] is None:
        if not all((decode_base64url(data[name], "key") or b"\0")[-1] & 1 for name in ("n", "e")):
            raise SignatureError("an RSA key must have an odd modulus and exponent", code="sign.weak-key")
    else:
        require_valid_point(kind[1], *(data[name] for name in ("x", "y") if name in data))
    native = import_native_key({name: data[name] for name in PUBLIC if name in data})
    return Key(kind, data["kid"], data["alg"], native, starts=data.get("nbf"), ends=data.get("exp"))


def require_valid_point(curve: str, *coordinates: str) -> None:
    """Raise unless the length is right (RFC 7518 6.2.1.2) and an Ed25519 point is not of small order."""
    decoded = [decode_base64url(coordinate, "key") for coordinate in coordinates]
    if any(len(coordinate) != COORDINATE_SIZES[curve] for coordinate in decoded):
        raise make_key_error("a coordinate of a key must have the length of its curve")
    if curve == "Ed25519":
        y = int.from_bytes(decoded[0], "little") & (2**255 - 1)
        if y >= _P25519 or y in _SMALL_ORDER:
            raise SignatureError("an Ed25519 key of small order verifies any message", code="sign.weak-key")


def is_time(value: object) -> TypeGuard[int | float]:
    """Whether a value of JSON is a time in seconds since the epoch, up to the year 9999."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LATEST


#: bytes and keys of a key set
MAX_KEY_SET: Final = 256 * 1024
MAX_KEYS: Final = 64
_KEY_KINDS: Final = frozenset(ALGORITHMS[name].kind for name in TOKEN_ALGORITHMS)
_MOST_KID: Final = 512


class Signer(Protocol):
    """A key in this process (`SigningKey`), or in a device (`PKCS11Signer`)."""

    @property
    def algorithm(self) -> str:
        """The only algorithm of the key."""
        ...

    @property
    def kid(self) -> str | None:
        """The key's name; for receipts the thumbprint of its public part."""
        ...

    def sign(self, content: bytes) -> bytes:
        """The signature in the form of JWS (RFC 7518 3, RFC 8037 3.1). Raises SignatureError."""
        ...

    def public(self) -> dict[str, Any]:
        """The public JWK, for publication."""
        ...


@dataclass(frozen=True, slots=True)
class KeySet:
    """Public keys to verify with."""

    keys: tuple[Key, ...]

    def candidates(self, algorithm: str, kid: str | None) -> tuple[Key, ...]:
        """The keys that may have made a signature; if it names a kid, only the keys with that kid."""
        return tuple(key for key in self.keys if key.can_verify(algorithm, kid))


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key. It signs only with `algorithm`; `repr()` does not show the key."""

    algorithm: str
    kid: str | None
    native: Any = field(repr=False)
    _sign: Callable[[bytes], bytes] | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if self.algorithm in {"Ed25519", "EdDSA"} and getattr(self.native, "is_private", False):
            # what the library does for these algorithms, without its checks of the key for each signature
            object.__setattr__(self, "_sign", self.native.get_op_key("sign").sign)

    @classmethod
    def generate(cls, algorithm: str, *, kid: str | None = None) -> SigningKey:
        """A new key for this algorithm. Raises SignatureError for an unknown algorithm."""
        require_extra("joserfc", "ai")
        from joserfc import jwk  # late: cryptography is heavy

        kty, curve = get_kind(algorithm)
        makers: dict[str, Any] = {"OKP": jwk.OKPKey, "EC": jwk.ECKey, "RSA": jwk.RSAKey}
        return cls(algorithm, kid, makers[kty].generate_key(curve or RSA_BITS[0]))

    @classmethod
    def from_jwk(cls, text: Secret, *, algorithm: str) -> SigningKey:
        """A key from a private JWK. Raises SignatureError if it is not for this algorithm."""
        data = parse_json_object(text.reveal().encode("utf-8", "replace"), "private key")
        kind = get_kind(algorithm)
        key = _parse_key(data, frozenset({kind}))
        own = algorithm if key is None or key.algorithm is None else key.algorithm
        if key is None or "d" not in data or normalize_algorithm(own) != normalize_algorithm(algorithm):
            raise make_key_error(f"this is not a private key for {algorithm}")
        return cls(algorithm, key.kid, import_native_key(data))

    def with_thumbprint(self) -> SigningKey:
        """The key with the thumbprint of its public part as kid (RFC 7638), as receipts require."""
        return replace(self, kid=thumbprint(self.native.as_dict(private=False)))

    def sign(self, content: bytes) -> bytes:
        """The signature over these bytes."""
        if self._sign is not None:
            return self._sign(content)
        return bytes(get_jws_model(self.algorithm).sign(content, self.native))

    def secret(self) -> Secret:
        """The private JWK, for storage."""
        return Secret(json.dumps({**self.native.as_dict(private=True), **self._get_names()}))

    def public(self) -> dict[str, Any]:
        """The public JWK, for publication."""
        plain = self.native.as_dict(private=False)
        return {name: plain[name] for name in PUBLIC if name in plain} | self._get_names()

    def _get_names(self) -> dict[str, str]:
        return {"alg": self.algorithm, "use": "sig"} | ({} if self.kid is None else {"kid": self.kid})


def read_keys(content: bytes) -> KeySet:
    """Read the usable keys of a JWK Set. Raises SignatureError.

    Keys of other types, curves and uses are ignored (RFC 7517 5). A private or shared key, a weak RSA key or
    an invalid key makes the whole set invalid.
    """
    _, members = _parse_key_set(content, MAX_KEY_SET, MAX_KEYS)
    keys = []
    for member in members:
        _require_public(member)
        key = _parse_key(member, _KEY_KINDS)
        keys += [] if key is None else [key]
    return KeySet(tuple(keys))


def _parse_key(data: Mapping[str, Any], kinds: frozenset[tuple[str, str | None]]) -> Key | None:
    """The key of a JWK; None if it has another kind or is not for signatures."""
    kty, curve = data.get("kty"), data.get("crv")
    kind = next((kind for kind in kinds if kind[0] == kty and kind[1] in {None, str(curve)}), None)
    operations = data.get("key_ops", ["verify"])
    if kind is None or data.get("use", "sig") != "sig" or not {"verify", "sign"} & collect_texts(operations):
        return None
    kid, algorithm = data.get("kid"), data.get("alg")
    if not _is_short(kid) or not _is_short(algorithm):
        raise make_key_error(f"kid and alg of a key must be strings of at most {_MOST_KID} characters")
    plain = {name: data[name] for name in PUBLIC if name in data}
    return Key(kind, kid, algorithm, import_native_key(plain))


def _is_short(value: object) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= _MOST_KID)
