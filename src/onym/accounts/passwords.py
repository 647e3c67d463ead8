"""Passwords: rules for new ones, argon2id hashes, and checks that take equally long for every login."""

from __future__ import annotations

import asyncio
import unicodedata
from dataclasses import dataclass, replace
from functools import cache
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from onym.accounts.records import MAX_LOGIN, Account
from onym.errors import RegistryError
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from argon2 import PasswordHasher

    from onym.accounts.store import AccountStore

#: characters; NIST SP 800-63B-4 3.1.1.2 requires 15 for a password without, and 8 with a second factor
MIN_PASSWORD: Final = 12
MAX_PASSWORD: Final = 1024
#: each hash needs 64 MiB
MAX_CONCURRENT_HASHES: Final = 2
#: the passwords of twelve or more characters at the top of every published list
_COMMON_PASSWORDS: Final = frozenset(
    {
        "123456789012",
        "1234567890123",
        "12345678901234",
        "123456789123",
        "1234567891011",
        "123123123123",
        "1q2w3e4r5t6y",
        "1qaz2wsx3edc",
        "abcdefghijkl",
        "adminadminadmin",
        "administrator",
        "changemechangeme",
        "correct horse battery staple",
        "correcthorsebatterystaple",
        "iloveyou1234",
        "letmeinletmein",
        "password1234",
        "password12345",
        "passwordpassword",
        "qwerty123456",
        "qwertyqwerty",
        "qwertyuiop12",
        "qwertyuiop123",
        "qwertyuiopasdfghjkl",
        "welcome12345",
        "zaq12wsxcde3",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordCheck:
    """The result of a password check. `rehash` is a new hash to store if the old parameters are outdated."""

    ok: bool
    rehash: Secret | None = None


def validate_password(password: Secret, *, login: str = "", name: str = "") -> None:
    """Raise RegistryError (field "password") if a new password is too weak."""
    text = _normalize_password(password)
    folded = text.casefold()
    own = {word.casefold() for word in (login, name) if word}
    reason = None
    if not MIN_PASSWORD <= len(text) <= MAX_PASSWORD:
        reason = f"a password has {MIN_PASSWORD} to {MAX_PASSWORD} characters"
    elif folded in _COMMON_PASSWORDS or len(set(folded)) < 4:
        reason = "this password is one of the first that attackers try"
    elif folded in own or any(folded.startswith(word) and len(word) > len(folded) // 2 for word in own):
        reason = "the password is too similar to the login or the name"
    if reason is not None:
        raise RegistryError(
            reason,
            code="accounts.weak-password",
            field="password",
            hint="Use several unrelated words, or let a password manager create one.",
        )


def hash_password(password: Secret) -> Secret:
    """Return the argon2id hash as a PHC string. Call it in a thread: it takes 64 MiB and some 50 ms."""
    return Secret(_get_hasher().hash(_normalize_password(password)))


def verify_password(stored: Secret | None, password: Secret) -> PasswordCheck:
    """Compare the password with the stored hash. Call it in a thread.

    Without a hash (an unknown login, or one that signs in elsewhere) it does the same work on a dummy, so
    that the time does not reveal which logins exist. An unreadable hash matches no password.
    """
    from argon2.exceptions import InvalidHashError, VerificationError  # late: native, only sign-in needs it

    hasher = _get_hasher()
    text = _normalize_password(password)
    if len(text) > MAX_PASSWORD:
        stored, text = None, ""
    try:
        hasher.verify((stored or _get_dummy_hash()).reveal(), text)
    except (VerificationError, InvalidHashError):
        return PasswordCheck(ok=False)
    if stored is None:
        return PasswordCheck(ok=False)
    outdated = hasher.check_needs_rehash(stored.reveal())
    return PasswordCheck(ok=True, rehash=Secret(hasher.hash(text)) if outdated else None)


class Passwords:
    """Hashes and verifies passwords in threads, a few at a time, so that other requests go on."""

    def __init__(self, limit: int = MAX_CONCURRENT_HASHES) -> None:
        self._turn = asyncio.Semaphore(limit)

    async def hash(self, password: Secret) -> Secret:
        """Return the hash to store."""
        async with self._turn:
            return await asyncio.to_thread(hash_password, password)

    async def verify(self, stored: Secret | None, password: Secret) -> PasswordCheck:
        """Compare the password with the stored hash; without a hash, do the same work."""
        async with self._turn:
            return await asyncio.to_thread(verify_password, stored, password)

    async def authenticate(self, store: AccountStore, login: str, password: Secret) -> Account | None:
        """Return the account with this login and password, or None after the same amount of work.

        A hash with outdated parameters is replaced; the account that is returned has the current hash.
        """
        text = login.strip().lower()
        account = await store.accounts.find_by_login(text) if 0 < len(text) <= MAX_LOGIN else None
        stored = None if account is None or account.disabled else account.password_hash
        check = await self.verify(stored, password)
        if not check.ok or account is None or stored is None:
            return None
        # a password that was changed meanwhile stays; the session will be rejected
        if check.rehash is not None and await store.accounts.replace_password(
            account.id, stored, check.rehash
        ):
            return replace(account, password_hash=check.rehash)
        return account


def _normalize_password(password: Secret) -> str:
    # RFC 8265 4.2.2 (OpaqueString): other spaces become U+0020, then NFC; the cap bounds the work
    text = password.reveal()[: MAX_PASSWORD + 1]
    spaced = "".join(" " if unicodedata.category(c) == "Zs" else c for c in text)
    return unicodedata.normalize("NFC", spaced).encode("utf-8", "replace").decode()


@cache
def _get_hasher() -> PasswordHasher:
    from argon2 import PasswordHasher  # late: native, only sign-in needs it
    from argon2.profiles import RFC_9106_LOW_MEMORY

    # RFC 9106 4, second recommended option: t=3, p=4, m=64 MiB, 128-bit salt, 256-bit tag
    return PasswordHasher.from_parameters(RFC_9106_LOW_MEMORY)


@cache
def _get_dummy_hash() -> Secret:
    return Secret(_get_hasher().hash(token_hex(16)))
