"""Sealing: encryption of data that a store or a browser keeps for Onym (AES-256-GCM, keys by HKDF-SHA-256).

Each sealed value has its own key, derived from a secret of the service, a random salt, the purpose and the
context. So a value opens only for the purpose and the context that it was sealed for: a session's record that
was moved to another session does not open. `own` adds a second secret that the service does not keep, such as
a browser's cookie; then neither secret opens the value without the other.
"""

from __future__ import annotations

import hashlib
import secrets as random
from collections.abc import Sequence
from typing import Any, Final, Protocol

from onym._lazy import require_extra
from onym.errors import SignatureError
from onym.uri.secret import Secret

#: bytes that can be sealed
MAX_SEALED: Final = 256 * 1024
_VERSION: Final = b"\x01"
_ID: Final = 8
_SALT: Final = 16
_TAG: Final = 16
_HEAD: Final = len(_VERSION) + _ID + _SALT
_KEY: Final = 32
_NONCE: Final = 12


class SealingSecrets(Protocol):
    """The secrets of a service, which all its processes share."""

    def list_secrets(self) -> Sequence[Secret]:
        """Return the current secret, then the previous ones that still open values."""
        ...


class TemporarySecrets:
    """One random secret, for a service of one process. Its values do not open after a restart."""

    def __init__(self) -> None:
        self._secret = Secret(random.token_urlsafe(32))

    def list_secrets(self) -> Sequence[Secret]:
        """Return the secret."""
        return (self._secret,)


def seal(
    secrets: SealingSecrets, purpose: str, data: bytes, *, context: str = "", own: Secret | None = None
) -> bytes:
    """Encrypt data with the current secret.

    `purpose` names the kind of the value and `context` its owner; both, and `own` if it is given, are
    needed to open it. Raises SignatureError `sign.too-large` above `MAX_SEALED` bytes.
    """
    if len(data) > MAX_SEALED:
        raise SignatureError(f"at most {MAX_SEALED} bytes can be sealed", code="sign.too-large")
    secret = secrets.list_secrets()[0]
    head = _VERSION + _hash_secret(secret) + random.token_bytes(_SALT)
    cipher, nonce = _derive_cipher(secret, own, head[-_SALT:], purpose, context)
    return head + bytes(cipher.encrypt(nonce, data, head))


def open_sealed(
    secrets: SealingSecrets, purpose: str, sealed: bytes, *, context: str = "", own: Secret | None = None
) -> bytes:
    """Decrypt a sealed value with the secret that sealed it.

    Raises SignatureError `sign.bad-seal` if the value was changed or sealed for something else, and if its
    secret is not known any more.
    """
    head, body = sealed[:_HEAD], sealed[_HEAD:]
    if head[:1] != _VERSION or not _TAG <= len(body) <= MAX_SEALED + _TAG:
        raise _make_seal_error()
    known = head[1 : 1 + _ID]
    secret = next((secret for secret in secrets.list_secrets() if _hash_secret(secret) == known), None)
    if secret is None:
        raise _make_seal_error()
    from cryptography.exceptions import InvalidTag  # late: cryptography is heavy

    cipher, nonce = _derive_cipher(secret, own, head[-_SALT:], purpose, context)
    try:
        return bytes(cipher.decrypt(nonce, body, head))
    except InvalidTag:
        raise _make_seal_error() from None


def _derive_cipher(
    secret: Secret, own: Secret | None, salt: bytes, purpose: str, context: str
) -> tuple[Any, bytes]:
    require_extra("cryptography", "ai")
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # late: cryptography is heavy
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    material = _join_parts(secret.reveal(), "" if own is None else own.reveal())
    info = _join_parts("onym-seal-v1", purpose, context)
    derived = HKDF(algorithm=SHA256(), length=_KEY + _NONCE, salt=salt, info=info).derive(material)
    # the salt is random, so no key and nonce occur twice
    return AESGCM(derived[:_KEY]), derived[_KEY:]


def _join_parts(*parts: str) -> bytes:
    """Join texts so that no two lists of texts give the same bytes."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in encoded)


def _hash_secret(secret: Secret) -> bytes:
    """Return the name of a secret in sealed values, which reveals nothing about it."""
    return hashlib.sha256(_join_parts("onym-seal-id", secret.reveal())).digest()[:_ID]


def _make_seal_error() -> SignatureError:
    return SignatureError(
        "the sealed value was changed, belongs to something else, or its secret was rotated out",
        code="sign.bad-seal",
    )
