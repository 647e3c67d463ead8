"""Signatures: JWS, ID tokens, key sets, receipts of ai:// authorities. The only importer of the JOSE library.

Names are loaded when they are first used: the library and its cryptography are heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_getattr

if TYPE_CHECKING:
    from onym.sign.id_tokens import IDToken, verify_id_token
    from onym.sign.jws import Verified, sign_compact, verify, verify_compact
    from onym.sign.keys import (
        AuthorityKeys,
        KeySet,
        Signer,
        SigningKey,
        read_authority_keys,
        read_keys,
        thumbprint,
    )
    from onym.sign.keystore import KeyStore
    from onym.sign.pkcs11 import PKCS11Signer
    from onym.sign.receipts import (
        Expected,
        Receipt,
        StreamChain,
        StreamEnd,
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

#: public name -> the module that defines it
_HOME = {
    "AuthorityKeys": "onym.sign.keys",
    "Expected": "onym.sign.receipts",
    "IDToken": "onym.sign.id_tokens",
    "KeySet": "onym.sign.keys",
    "KeyStore": "onym.sign.keystore",
    "PKCS11Signer": "onym.sign.pkcs11",
    "Receipt": "onym.sign.receipts",
    "Signer": "onym.sign.keys",
    "SigningKey": "onym.sign.keys",
    "StreamChain": "onym.sign.receipts",
    "StreamEnd": "onym.sign.receipts",
    "Verified": "onym.sign.jws",
    "access_token_hash": "onym.sign.receipts",
    "content_digest": "onym.sign.receipts",
    "read_authority_keys": "onym.sign.keys",
    "read_keys": "onym.sign.keys",
    "request_hash": "onym.sign.receipts",
    "sign_compact": "onym.sign.jws",
    "sign_receipt": "onym.sign.receipts",
    "thumbprint": "onym.sign.keys",
    "verify": "onym.sign.jws",
    "verify_compact": "onym.sign.jws",
    "verify_filed": "onym.sign.receipts",
    "verify_id_token": "onym.sign.id_tokens",
    "verify_receipt": "onym.sign.receipts",
}

__getattr__ = make_lazy_getattr(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
