"""The keys of one ai:// authority, and nobody else's (AIIP/HTTPS v1, 3.9).

A key is known by the thumbprint of what it is (RFC 7638), so that no set can hold two of one name, and none
can give a stranger's key a name that is trusted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from onym.errors import SignatureError
from onym.sign._jwk import PRIVATE, PUBLIC, RECEIPT_ALGORITHMS, Key, bad_key, native_key, texts, thumbprint
from onym.sign._strict import decode, read_object

__all__ = ["LEEWAY", "MAX_HISTORY", "MAX_KEYS", "MAX_KEY_SET", "AuthorityKeys", "read_authority_keys"]

#: octets and keys of a set that is in force
MAX_KEY_SET: Final = 64 * 1024
MAX_KEYS: Final = 20
#: keys of a history, which grows by one with each rotation; its octets are four times a set's
MAX_HISTORY: Final = 400
#: seconds that two clocks may be apart
LEEWAY: Final = 60.0
_LATEST: Final = 253402300799  # the last second of 9999, the last that a datetime holds
_COORDINATE: Final[Mapping[str, int]] = MappingProxyType({"P-256": 32, "P-384": 48, "Ed25519": 32})
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
        name = "Ed25519" if algorithm == "EdDSA" else algorithm
        if key.algorithm != name or key.kind != RECEIPT_ALGORITHMS.get(name):
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
    limit, most = (4 * MAX_KEY_SET, MAX_HISTORY) if history else (MAX_KEY_SET, MAX_KEYS)
    if len(octets) > limit:
        raise SignatureError(f"the key set is longer than {limit} octets", code="sign.too-large")
    found = read_object(octets, "key set")
    members, revoked = found.get("keys"), found.get("revoked", [])
    if not isinstance(members, list) or len(members) > most:
        raise bad_key(f"the key set is no list of at most {most} keys")
    if not isinstance(revoked, list) or len(texts(revoked)) < len(revoked):
        raise bad_key("revoked is a list of kids, each once")
    keys: dict[str, Key] = {}
    withdrawn, ignored = texts(revoked), []
    for number, each in enumerate(members, 1):
        _check_public(each)
        why = _reason(each) or ("is not allowed by the registry" if _foreign(each, only) else None)
        if why is not None:
            ignored.append(f"key {number} {why}")
            continue
        if each["kid"] in keys:
            raise bad_key("the key set has one kid twice")
        keys[each["kid"]] = _key(each)
        if "revoked" in each:  # as the histories of OpenID Federation say it
            withdrawn.add(each["kid"])
    kept = {kid: key for kid, key in keys.items() if kid not in withdrawn}
    return AuthorityKeys(keys=MappingProxyType(kept), revoked=frozenset(withdrawn), ignored=tuple(ignored))


def _check_public(data: object) -> None:
    if not isinstance(data, dict):
        raise bad_key("a member of the key set is no key")
    if not PRIVATE.isdisjoint(data) or data.get("kty") == "oct":
        raise bad_key("the key set publishes a private or shared key", "its owner must replace it at once")


def _reason(data: Mapping[str, Any]) -> str | None:
    """Why a key does not count, as the end of a sentence; None for one that does."""
    kid, algorithm = data.get("kid"), data.get("alg")
    if not isinstance(kid, str) or not isinstance(algorithm, str):
        return "has no kid or no alg"
    kind = RECEIPT_ALGORITHMS.get(algorithm)
    if kind is None:
        return "is for an algorithm that is not for receipts"
    if data.get("use", "sig") != "sig" or "verify" not in texts(data.get("key_ops", ["verify"])):
        return "is not for verifying signatures"
    if data.get("kty") != kind[0] or data.get("crv") != kind[1]:
        return "is not of its algorithm's kind"
    if not all(_is_time(data[name]) for name in ("nbf", "exp") if name in data):
        return "has a time that is no number of seconds"
    return None if thumbprint(data) == kid else "has a kid that is not its thumbprint"


def _foreign(data: Mapping[str, Any], only: Collection[str] | None) -> bool:
    return only is not None and data["kid"] not in only


def _key(data: Mapping[str, Any]) -> Key:
    kind = RECEIPT_ALGORITHMS[data["alg"]]
    if kind[1] is None:
        _check_odd(data["n"], data["e"])
    else:
        _check_point(kind[1], *(data[name] for name in ("x", "y") if name in data))
    native = native_key({name: data[name] for name in PUBLIC if name in data})
    return Key(kind, data["kid"], data["alg"], native, starts=data.get("nbf"), ends=data.get("exp"))


def _check_odd(*numbers: str) -> None:
    """Modulus and exponent of RSA: an even one is none."""
    if not all((decode(each, "key") or b"\0")[-1] & 1 for each in numbers):
        raise SignatureError("an RSA key has an odd modulus and exponent", code="sign.weak-key")


def _check_point(curve: str, *coordinates: str) -> None:
    """Full length (RFC 7518 6.2.1.2), and for Ed25519 a canonical point that is not of small order."""
    octets = [decode(each, "key") for each in coordinates]
    if any(len(each) != _COORDINATE[curve] for each in octets):
        raise bad_key("a coordinate of a key has the length of its curve")
    if curve == "Ed25519":
        y = int.from_bytes(octets[0], "little") & (2**255 - 1)
        if y >= _P25519 or y in _SMALL_ORDER:
            raise SignatureError("an Ed25519 key of small order holds for anything", code="sign.weak-key")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LATEST
