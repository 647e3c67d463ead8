"""Why a certificate and its key cannot be used. OpenSSL names neither the file nor, often, the fault."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

__all__ = ["why_unusable"]

#: octets of a file that are looked at for what it holds
_LOOKED_AT: Final = 1024 * 1024
_CERTIFICATE: Final = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----")
_KEY: Final = re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----")
_LOCKED: Final = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED", re.MULTILINE)


def why_unusable(error: Exception, certificate: str | Path, key: str | Path | None) -> str:
    """What is known of why `load_cert_chain` of these PEM files ended with this error, in a few words."""
    place = certificate if key is None else key
    try:
        chain = _read(certificate)
        secret = chain if key is None else _read(key)
    except OSError as unread:
        return f"{_missing(unread)} {unread.filename}"
    if not _CERTIFICATE.search(chain):
        swapped = key is not None and _KEY.search(chain) and _CERTIFICATE.search(secret)
        return (
            f"{certificate} holds the key and {key} the certificate: the two are swapped"
            if swapped
            else f"there is no PEM certificate in {certificate}"
        )
    if not _KEY.search(secret):
        return f"there is no PEM private key in {place}"
    if _LOCKED.search(secret):
        return f"the key in {place} has a password"
    reason = getattr(error, "reason", None)  # of an ssl.SSLError: OpenSSL's word
    if reason == "KEY_VALUES_MISMATCH":
        return f"the key in {place} is that of another certificate than the one in {certificate}"
    return str(reason or type(error).__name__)


def _missing(error: OSError) -> str:
    return "there is no file" if isinstance(error, FileNotFoundError) else f"{error.strerror}:"


def _read(file: str | Path) -> bytes:
    with Path(file).open("rb") as stream:
        return stream.read(_LOOKED_AT)
