"""The signature algorithms: one row each. Every other list of algorithms is derived from these rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Final

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
