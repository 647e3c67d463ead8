"""Signatures: JWS, ID tokens and key sets. The only importer of the JOSE library.

Names are loaded when they are first used: the library and its cryptography are heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onym.sign.jws import Verified, sign_compact, verify, verify_compact
    from onym.sign.jwt import IDToken, verify_id_token
    from onym.sign.keys import KeySet, SigningKey, read_keys

__all__ = [
    "IDToken",
    "KeySet",
    "SigningKey",
    "Verified",
    "read_keys",
    "sign_compact",
    "verify",
    "verify_compact",
    "verify_id_token",
]

_HOMES = {
    "jws": ("Verified", "sign_compact", "verify", "verify_compact"),
    "jwt": ("IDToken", "verify_id_token"),
    "keys": ("KeySet", "SigningKey", "read_keys"),
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
