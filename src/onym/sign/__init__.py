"""Signatures: JWS, ID tokens, key sets, receipts of ai:// authorities. Only this imports the JOSE library.

Names are loaded when they are first used: the library and its cryptography are heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_names

if TYPE_CHECKING:
    from onym.sign.dpop import DPoPKey as DPoPKey
    from onym.sign.dpop import DPoPProof as DPoPProof
    from onym.sign.dpop import generate_dpop_key as generate_dpop_key
    from onym.sign.dpop import sign_dpop_proof as sign_dpop_proof
    from onym.sign.dpop import verify_dpop_proof as verify_dpop_proof
    from onym.sign.jws import IDJAG as IDJAG
    from onym.sign.jws import IDToken as IDToken
    from onym.sign.jws import Verified as Verified
    from onym.sign.jws import sign_client_assertion as sign_client_assertion
    from onym.sign.jws import sign_compact as sign_compact
    from onym.sign.jws import verify as verify
    from onym.sign.jws import verify_compact as verify_compact
    from onym.sign.jws import verify_id_jag as verify_id_jag
    from onym.sign.jws import verify_id_token as verify_id_token
    from onym.sign.keys import AuthorityKeys as AuthorityKeys
    from onym.sign.keys import KeySet as KeySet
    from onym.sign.keys import Signer as Signer
    from onym.sign.keys import SigningKey as SigningKey
    from onym.sign.keys import read_authority_keys as read_authority_keys
    from onym.sign.keys import read_keys as read_keys
    from onym.sign.keys import thumbprint as thumbprint
    from onym.sign.keystore import KeyStore as KeyStore
    from onym.sign.keystore import PKCS11Signer as PKCS11Signer
    from onym.sign.receipts import Expected as Expected
    from onym.sign.receipts import Receipt as Receipt
    from onym.sign.receipts import StreamChain as StreamChain
    from onym.sign.receipts import StreamEnd as StreamEnd
    from onym.sign.receipts import access_token_hash as access_token_hash
    from onym.sign.receipts import content_digest as content_digest
    from onym.sign.receipts import request_hash as request_hash
    from onym.sign.receipts import sign_receipt as sign_receipt
    from onym.sign.receipts import verify_filed as verify_filed
    from onym.sign.receipts import verify_receipt as verify_receipt

_HOMES = {
    "onym.sign.dpop": "DPoPKey DPoPProof generate_dpop_key sign_dpop_proof verify_dpop_proof",
    "onym.sign.jws": (
        "IDJAG IDToken Verified sign_client_assertion sign_compact verify verify_compact verify_id_jag "
        "verify_id_token"
    ),
    "onym.sign.keys": "AuthorityKeys KeySet Signer SigningKey read_authority_keys read_keys thumbprint",
    "onym.sign.keystore": "KeyStore PKCS11Signer",
    "onym.sign.receipts": (
        "Expected Receipt StreamChain StreamEnd access_token_hash content_digest request_hash sign_receipt "
        "verify_filed verify_receipt"
    ),
}

__getattr__, __dir__, __all__ = make_lazy_names(__name__, _HOMES)
