"""Password work in threads, few at a time: each takes 64 MiB, and strangers decide how many there are."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from onym.registry.accounts import MAX_LOGIN, Verdict, hash_password, verify_password
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.registry.accounts import Account
    from onym.registry.store import Store

__all__ = ["AT_ONCE", "Passwords"]

AT_ONCE: Final = 2


class Passwords:
    """Hashes and tests passwords without holding up other requests."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._turn = asyncio.Semaphore(at_once)

    async def hash(self, password: Secret) -> Secret:
        """The hash to store."""
        async with self._turn:
            return await asyncio.to_thread(hash_password, password)

    async def verify(self, stored: Secret | None, password: Secret) -> Verdict:
        """Does it fit? Without a hash the work is done all the same."""
        async with self._turn:
            return await asyncio.to_thread(verify_password, stored, password)

    async def account(self, store: Store, login: str, password: Secret) -> Account | None:
        """The account of this login and password; None whatever is wrong, after the same work.

        A hash with outdated parameters is replaced; the account is given with the hash that fits.
        """
        text = login.strip().lower()
        account = await store.accounts.by_login(text) if 0 < len(text) <= MAX_LOGIN else None
        stored = None if account is None or account.disabled else account.password_hash
        verdict = await self.verify(stored, password)
        if not verdict.ok or account is None or stored is None:
            return None
        # a password that was changed meanwhile stays: the session will be refused
        if verdict.rehash is not None and await store.accounts.replace_password(
            account.id, stored, verdict.rehash
        ):
            return replace(account, password_hash=verdict.rehash)
        return account
