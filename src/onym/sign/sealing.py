"""Secrets that all processes of a service share, and the encryption of what stores and browsers keep for it.

A folder of secrets has the files `current` and `previous`; all machines mount it or get copies. After a
rotation every process accepts the new secret at once, and uses it two minutes later, when the last process
knows it.
"""

from __future__ import annotations

import hashlib
import secrets as random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from onym._lazy import require_extra
from onym.common import files
from onym.common.text import format_timestamp, parse_timestamp
from onym.errors import CredentialError, SignatureError
from onym.uri.secret import Secret

#: seconds between two readings of the folder; a change is known after twice that time at the latest
RELOAD_SECONDS: Final = 30.0
#: seconds after a rotation until the new secret is used
OVERLAP_SECONDS: Final = 120.0
#: seconds for which secrets are used whose folder cannot be read
PATIENCE_SECONDS: Final = 600.0

_CURRENT: Final = "current"
_PREVIOUS: Final = "previous"
_LOCK: Final = ".lock"
_LIMIT: Final = 4096
_SHORTEST: Final = 32
_LONGEST: Final = 1024
_FROM: Final = "from "


@dataclass(frozen=True, slots=True)
class _SecretFile:
    """The content of a file: the secret, and the time (seconds since the epoch) from which it is used."""

    secret: Secret = field(repr=False)
    begins: float = 0.0


class FleetSecrets:
    """The secrets in a folder, which is read again every 30 seconds. Threads may share the object.

    The files `current` and `previous` are readable by their owner only. A file has the secret in its first
    line (at least 32 characters; `rotate_secrets` writes 43) and may say in a second one from when it is
    used: `from 2026-01-02T03:04:05.000006Z`. The previous secret is accepted until the next rotation.

    Raises CredentialError `credential.missing`, `credential.permissions`, `credential.unreadable` or
    `credential.bad-secret` when it is made; later only if the folder has been unusable for ten minutes.
    """

    def __init__(self, folder: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.folder = Path(folder)
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = self._tried_at = clock()
        self._files = _read_folder(self.folder)

    def list_secrets(self) -> Sequence[Secret]:
        """Return the secret to use now, then the others that are accepted."""
        now = self._clock()
        # a clock that was set back must not stop the reading
        if abs(now - self._tried_at) >= RELOAD_SECONDS:
            with self._lock:
                if abs(now - self._tried_at) >= RELOAD_SECONDS:
                    self._reload(now)
        current, *others = self._files
        if others and current.begins > now:
            return (others[0].secret, current.secret)
        return tuple(file.secret for file in self._files)

    def _reload(self, now: float) -> None:
        try:
            self._files = _read_folder(self.folder)
        except CredentialError:
            # a mount may be away for a moment; after some minutes the secrets may have been revoked
            if abs(now - self._read_at) >= PATIENCE_SECONDS:
                raise
        else:
            self._read_at = now
        self._tried_at = now


def rotate_secrets(
    folder: str | Path, *, revoke: bool = False, clock: Callable[[], float] = time.time
) -> float:
    """Make a new secret, and keep the current one as the previous one. A folder that is missing is created.

    Return the time (seconds since the epoch) from which the new secret is used. With `revoke` the old secrets
    are removed and the new one is used at once: seals and nonces that were made with them are worthless.

    Raises CredentialError; `credential.too-early` if the last rotation is not yet in use, because values that
    another machine is making now would not open any more.
    """
    path, now = Path(folder), clock()
    files.make_private_folder(path)
    with files.lock_private_file(path / _LOCK):
        begins = now
        if revoke:
            files.remove_private_file(path / _PREVIOUS)
        elif (path / _CURRENT).exists():
            current = _read_secret(path / _CURRENT)
            if current.begins > now:
                raise CredentialError(
                    f"the last rotation of {path} is not yet in use",
                    code="credential.too-early",
                    hint=f"Wait {current.begins - now:.0f} seconds. To remove a stolen secret, use --revoke.",
                )
            begins = now + OVERLAP_SECONDS
            # first this one: a process that reads in between finds the same secret twice
            files.write_private_file(path / _PREVIOUS, _format_secret(current))
        new = _SecretFile(Secret(random.token_urlsafe(32)), begins)
        files.write_private_file(path / _CURRENT, _format_secret(new))
    return begins


def _read_folder(folder: Path) -> tuple[_SecretFile, ...]:
    """Return the current secret, and the previous one if there is one."""
    files.require_private_folder(folder)
    current = _read_secret(folder / _CURRENT)
    while True:
        previous = _read_previous(folder)
        again = _read_secret(folder / _CURRENT)
        if again == current:
            break
        current = again  # a rotation came between
    return (current,) if previous is None or previous.secret == current.secret else (current, previous)


def _read_previous(folder: Path) -> _SecretFile | None:
    try:
        return _read_secret(folder / _PREVIOUS)
    except CredentialError as error:
        if error.code != "credential.missing":
            raise
        return None


def _read_secret(file: Path) -> _SecretFile:
    found = _parse_secret(files.read_private_file(file, _LIMIT))
    if found is None:
        raise CredentialError(
            f"{file} is not a secret of a fleet: it needs {_SHORTEST} to {_LONGEST} ASCII characters in its "
            "first line",
            code="credential.bad-secret",
            hint="Create it with onym ai gateway secrets rotate DIR.",
        )
    return found


def _parse_secret(content: bytes) -> _SecretFile | None:
    """Return the secret, or None: an error that is raised here would have the content in its frames."""
    try:
        secret, *others = content.decode("ascii").splitlines()
        if len(others) > 1 or not all(line.startswith(_FROM) for line in others):
            return None
        times = [parse_timestamp(line.removeprefix(_FROM)).timestamp() for line in others]
    except ValueError:
        return None
    if not _SHORTEST <= len(secret) <= _LONGEST:
        return None
    return _SecretFile(Secret(secret), *times)


def _format_secret(file: _SecretFile) -> bytes:
    begins = format_timestamp(datetime.fromtimestamp(file.begins, UTC))
    return f"{file.secret.reveal()}\n{_FROM}{begins}\n".encode("ascii")


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
    """Encrypt data with the current secret and a key of its own (AES-256-GCM, keys by HKDF-SHA-256).

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
