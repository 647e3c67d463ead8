"""Signatures: JWS, ID tokens, key sets, receipts of ai:// authorities. The only importer of the JOSE library.

Names are loaded when they are first used: the library and its cryptography are heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onym.sign.authority import AuthorityKeys, read_authority_keys
    from onym.sign.chain import StreamChain, StreamEnd
    from onym.sign.jws import Verified, sign_compact, verify, verify_compact
    from onym.sign.jwt import IDToken, verify_id_token
    from onym.sign.keys import KeySet, Signer, SigningKey, read_keys, thumbprint
    from onym.sign.keystore import KeyStore
    from onym.sign.pkcs11 import PKCS11Signer
    from onym.sign.receipt import (
        Expected,
        Receipt,
        access_token_hash,
        content_digest,
        request_hash,
        sign_receipt,
        verify_filed,
        verify_receipt,
    )

__all__ = [
    "AuthorityKeys",
    "Expected",
    "IDToken",
    "KeySet",
    "KeyStore",
    "PKCS11Signer",
    "Receipt",
    "Signer",
    "SigningKey",
    "StreamChain",
    "StreamEnd",
    "Verified",
    "access_token_hash",
    "content_digest",
    "read_authority_keys",
    "read_keys",
    "request_hash",
    "sign_compact",
    "sign_receipt",
    "thumbprint",
    "verify",
    "verify_compact",
    "verify_filed",
    "verify_id_token",
    "verify_receipt",
]

_HOMES = {
    "authority": ("AuthorityKeys", "read_authority_keys"),
    "chain": ("StreamChain", "StreamEnd"),
    "jws": ("Verified", "sign_compact", "verify", "verify_compact"),
    "jwt": ("IDToken", "verify_id_token"),
    "keys": ("KeySet", "Signer", "SigningKey", "read_keys", "thumbprint"),
    "keystore": ("KeyStore",),
    "pkcs11": ("PKCS11Signer",),
    "receipt": (
        "Expected",
        "Receipt",
        "access_token_hash",
        "content_digest",
        "request_hash",
        "sign_receipt",
        "verify_filed",
        "verify_receipt",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"onym.sign.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
