"""The signature algorithms: one row each. Every other list of algorithms is derived from these rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

KeyKind = tuple[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One algorithm of JWS, by its name in RFC 7518, RFC 8037 or RFC 9864.

    `kty` and `curve` are those of its keys, `kind` is the pair. `hash_name` is the hash of the signature, as
    `hashlib` names it, and `strength` its security in bits. `tokens`, `id_tokens`, `receipts` and `cards` (of
    A2A agents) tell what it may sign, and `usual` whether every implementation of AIIP/HTTPS v1 has it (3.9).
    A PKCS #11 device needs the `device_key_type` and the `device_mechanism`.
    """

    name: str
    kty: str
    curve: str | None = None
    hash_name: str
    strength: int
    tokens: bool = True
    id_tokens: bool = False
    receipts: bool = True
    cards: bool = True
    usual: bool = False
    device_key_type: str = ""
    device_mechanism: str = ""

    @property
    def kind(self) -> KeyKind:
        """Key type and curve."""
        return self.kty, self.curve


_ROWS: Final = (
    Algorithm(
        name="Ed25519",
        kty="OKP",
        curve="Ed25519",
        hash_name="sha512",
        strength=128,
        id_tokens=True,
        cards=False,  # the SDK of A2A knows only the older name
        usual=True,
        device_key_type="EC_EDWARDS",
        device_mechanism="EDDSA",
    ),
    # the older name of Ed25519 (RFC 9864 2.2)
    Algorithm(
        name="EdDSA",
        kty="OKP",
        curve="Ed25519",
        hash_name="sha512",
        strength=128,
        id_tokens=True,
        receipts=False,
    ),
    Algorithm(
        name="ES256",
        kty="EC",
        curve="P-256",
        hash_name="sha256",
        strength=128,
        id_tokens=True,
        usual=True,
        device_key_type="EC",
        device_mechanism="ECDSA",
    ),
    Algorithm(
        name="ES384",
        kty="EC",
        curve="P-384",
        hash_name="sha384",
        strength=192,
        tokens=False,
        cards=False,
        device_key_type="EC",
        device_mechanism="ECDSA",
    ),
    Algorithm(name="RS256", kty="RSA", hash_name="sha256", strength=112, id_tokens=True, receipts=False),
    Algorithm(
        name="PS256",
        kty="RSA",
        hash_name="sha256",
        strength=112,
        device_key_type="RSA",
        device_mechanism="SHA256_RSA_PKCS_PSS",
    ),
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
