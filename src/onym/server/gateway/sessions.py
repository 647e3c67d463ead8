"""Sessions of people who signed in at a gateway, in the shared store of all processes of that gateway."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode

import msgspec

from onym.accounts.oidc import Person, ProviderTokens
from onym.accounts.records import hash_secret, is_session_id, make_session_id
from onym.common.text import decode_base64url, encode_base64url
from onym.errors import AIIPError, SignatureError
from onym.sign.sealing import SealingSecrets, open_sealed, seal
from onym.store.shared import MAX_FOUND, make_key, mark_seen
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.sign.jws import LogoutToken
    from onym.store.shared import SharedStore

#: seconds that a tombstone is kept; longer than a sign-in takes, and than a logout token is accepted
TOMBSTONE_SECONDS: Final = 700
#: sessions of one person; the oldest ends when there is one more
MAX_SESSIONS: Final = 50
#: seconds between two updates of a session's last use, so that most requests do not write
_TOUCH_SECONDS: Final = 60
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")
_PERSON: Final = "onym-gateway-person"
_TOKENS: Final = "onym-gateway-tokens"
_DATA: Final = "onym-gateway-data"
_FLOW: Final = "onym-gateway-sign-in"

#: seconds between two refreshes of a session's tokens, and between two looks of a request that waits for one
_REFRESH_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.1
_DONE: Final = b"done"

#: gets new tokens of the provider for the present ones
TokenRefresh: TypeAlias = "Callable[[ProviderTokens], Awaitable[ProviderTokens]]"
#: called with sessions that have ended
EndListener: TypeAlias = "Callable[[Sequence[PersonSession]], Awaitable[None]]"
PersonListener: TypeAlias = "Callable[[str, str], Awaitable[None]]"


class _Profile(msgspec.Struct, array_like=True):
    """What is sealed about a session, without its tokens. Times are in seconds since the epoch."""

    provider: str
    client_id: str
    issuer: str
    subject: str
    name: str | None
    email: str | None
    acr: str | None
    amr: tuple[str, ...]
    auth_time: float | None
    sid: str | None
    created: float
    expires: float
    browser: str


class _Record(msgspec.Struct, array_like=True):
    """The value in the store."""

    seen: float
    profile: bytes
    tokens: bytes


class HiddenStruct(msgspec.Struct, array_like=True):
    """Values that are stored sealed: their text shows nothing of them."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(***)"


class _Tokens(HiddenStruct, array_like=True):
    access: str
    id_token: str
    refresh: str | None
    expires: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonSession:
    """One browser in which a person is signed in.

    `digest` is the SHA-256 of the cookie, which names the session everywhere else. `provider` is the ID of
    the provider in the settings, `client_id` the gateway's ID there. Times are in seconds since the epoch.
    `browser` describes the browser in a few words. `secret` is the cookie; a session that was found for a
    list has none.
    """

    digest: str
    provider: str
    client_id: str
    person: Person
    created: float
    seen: float
    expires: float
    browser: str
    secret: Secret | None = field(repr=False)
    version: int = field(repr=False)
    sealed_tokens: bytes = field(repr=False)


class PersonSessions:
    """The sessions of a gateway. `clock` returns the time in UTC; `idle` and `life` are in seconds.

    Every method raises StoreError if the store cannot be reached or is full.

    A browser has one cookie with 256 random bits. The store has a record under the SHA-256 of the cookie. The
    person in it is sealed with the service's secrets; the provider's tokens, and other data that handlers
    keep for a session, are sealed with the cookie as well. So neither the store nor a cookie alone opens
    them, and nothing can act for a person whose browser is away.

    A session ends at a fixed time, after idleness, when its person ends it, or when the provider says that
    the person signed out. A sign-out leaves a tombstone: a sign-in that began before it does not open a
    session. A store that cannot be reached raises StoreError: nobody is signed in or out by mistake.
    """

    def __init__(
        self,
        store: SharedStore,
        secrets: SealingSecrets,
        clock: Callable[[], datetime],
        *,
        idle: int,
        life: int,
    ) -> None:
        self.store = store
        self._secrets = secrets
        self._clock = clock
        self._idle = idle
        self._life = life
        self._listeners: list[EndListener] = []
        self._person_listeners: list[PersonListener] = []

    async def check(self) -> None:
        """Raise StoreError or CredentialError if sessions cannot be stored or sealed now."""
        self._secrets.list_secrets()
        await self.store.check()

    def add_listener(self, listener: EndListener) -> None:
        """Call `listener` after sessions have ended, for example to withdraw what they wait for."""
        self._listeners.append(listener)

    def add_person_listener(self, listener: PersonListener) -> None:
        """Call `listener` with issuer and subject of a person who is signed out everywhere.

        It is called for a person without a session too: their programs may have brought calls.
        """
        self._person_listeners.append(listener)

    async def find(self, cookie: str) -> PersonSession | None:
        """Return the session of a cookie, and note its use; None if it does not exist or has ended."""
        if not is_session_id(cookie):
            return None
        secret = Secret(cookie)
        session = await self._load(hash_secret(secret), secret)
        if session is None or self._now() - session.seen < min(_TOUCH_SECONDS, self._idle / 4):
            return session
        seen = self._now()
        record = _Record(seen, self._seal_profile(session), session.sealed_tokens)
        if await self._replace(session, record):
            return session
        # another request was first, or the session has ended meanwhile
        return await self._load(session.digest, secret)

    async def is_live(self, session: PersonSession) -> bool:
        """Report whether a session that was found before still exists."""
        return await self._load(session.digest, None) is not None

    async def create(
        self,
        person: Person,
        tokens: ProviderTokens,
        *,
        provider: str,
        client_id: str,
        began: float,
        browser: str = "",
    ) -> PersonSession:
        """Sign a person in, with a new cookie (`secret`).

        `began` is when the sign-in began. Raises AIIPError `aiip.sign-in-failed` if the person signed out at
        the provider since.
        """
        await self._make_room(person)
        return await self._create(
            person, tokens, provider=provider, client_id=client_id, began=began, browser=browser
        )

    async def _create(
        self,
        person: Person,
        tokens: ProviderTokens,
        *,
        provider: str,
        client_id: str,
        began: float,
        browser: str,
    ) -> PersonSession:
        now = self._now()
        secret = make_session_id()
        session = PersonSession(
            digest=hash_secret(secret),
            provider=provider,
            client_id=client_id,
            person=person,
            created=now,
            seen=now,
            expires=now + self._life,
            browser=browser,
            secret=secret,
            version=0,
            sealed_tokens=b"",
        )
        record = _Record(now, self._seal_profile(session), self._seal_tokens(session, tokens))
        end = self._end_of(session)
        # first the record: an index entry without one is deleted
        await self.store.put(_record_key(session.digest), msgspec.msgpack.encode(record), end)
        for key in _list_index_keys(session):
            await self.store.put(key, b"", session.expires)
        # a sign-out either sees the session that is now in the store, or left its tombstone before
        if await self._was_signed_out(person, began):
            await self._end([session])
            raise AIIPError(
                "you signed out at the provider while this sign-in was in progress",
                code="aiip.sign-in-failed",
                hint="Sign in again.",
            )
        return session

    async def renew(
        self, session: PersonSession, person: Person, tokens: ProviderTokens, *, began: float
    ) -> PersonSession:
        """Return a new session, with a new cookie, in place of one whose person signed in again (step-up).

        Its data moves to the new session. Raises AIIPError as `create` does, and ends no session then.
        """
        # no room is made: it takes the place of this session, which may be the oldest
        fresh = await self._create(
            person,
            tokens,
            provider=session.provider,
            client_id=session.client_id,
            began=began,
            browser=session.browser,
        )
        folder = _data_key(session.digest, "")
        for key, found in await self.store.find(folder, limit=MAX_FOUND):
            data = self._open_data(session, key, found.value)
            if data is not None:
                moved = _data_key(fresh.digest, "") + key.removeprefix(folder)
                await self._put_data(fresh, moved, data, min(found.until, fresh.expires))
        await self._delete(session)
        return fresh

    async def list_sessions(self, person: Person) -> list[PersonSession]:
        """Return the sessions of a person, the newest first."""
        prefix = _person_prefix(person.issuer, person.subject)
        sessions = []
        for key, _ in await self.store.find(prefix, limit=MAX_FOUND):
            session = await self._load(key.removeprefix(prefix), None)
            if session is None:
                await self.store.delete(key)
            else:
                sessions.append(session)
        return sorted(sessions, key=lambda session: session.created, reverse=True)

    async def end(self, session: PersonSession) -> None:
        """End one session."""
        await self._end([session])

    async def end_one(self, person: Person, digest: str) -> bool:
        """End the session of this digest if it is the person's. Report whether it was."""
        if not _DIGEST.match(digest):
            return False
        session = await self._load(digest, None)
        if session is None or not is_same_person(session.person, person):
            return False
        await self._end([session])
        return True

    async def end_all(self, issuer: str, subject: str) -> int:
        """End all sessions of a person. Return their number."""
        return await self._end_indexed(_person_prefix(issuer, subject))

    async def find_subjects(self, issuer: str, name: str) -> list[str]:
        """Return the subjects of an issuer that `name` means: a subject, or a verified e-mail address.

        For an address, it reads all sessions.
        """
        if "@" not in name:
            return [name]
        subjects = {name} if await self.store.count(_person_prefix(issuer, name)) else set()
        after: str | None = None
        while rows := await self.store.find("session/", limit=MAX_FOUND, after=after):
            after = rows[-1][0]
            for key, _ in rows:
                session = await self._load(key.split("/")[1], None) if key.endswith("/record") else None
                if session is None or session.person.issuer != issuer:
                    continue
                if (session.person.email or "").casefold() == name.casefold():
                    subjects.add(session.person.subject)
        return sorted(subjects)

    async def end_by_operator(self, issuer: str, subject: str) -> int:
        """End all sessions of a person, and sign-ins that are in progress. Return the number of sessions."""
        await self._leave_tombstone(_person_tombstone_key(issuer, subject))
        return await self._end_person(issuer, subject)

    async def _end_person(self, issuer: str, subject: str) -> int:
        ended = await self.end_all(issuer, subject)
        for listener in self._person_listeners:
            await listener(issuer, subject)
        return ended

    async def _leave_tombstone(self, key: str) -> None:
        now = self._now()
        await self.store.put(key, str(now).encode(), now + TOMBSTONE_SECONDS)

    async def end_signed_out(self, token: LogoutToken) -> int | None:
        """End the sessions that a logout token names. Return their number, or None if it was used before.

        Sign-ins that began before now do not open a session (`create`).
        """
        until = self._now() + TOMBSTONE_SECONDS
        used = make_key("logout-token", f"{token.issuer} {token.id}")
        if await self.store.get(used) is not None:
            return None
        # the tombstone comes first: see `create`
        if token.session is not None:
            await self._leave_tombstone(_sid_tombstone_key(token.issuer, token.session))
            ended = await self._end_indexed(_sid_prefix(token.issuer, token.session))
        else:
            subject = token.subject or ""
            await self._leave_tombstone(_person_tombstone_key(token.issuer, subject))
            ended = await self._end_person(token.issuer, subject)
        # last, so that the provider can repeat a token whose sessions could not be ended
        await self.store.put(used, b"", until)
        return ended

    def sign_flow(self, name: str, cookie: Secret) -> Secret:
        """Return the cookie of a sign-in with proof that this gateway set it, under this name.

        The cookie tells when the sign-in began, and a sign-out counts for those that began before it.
        """
        text = cookie.reveal()
        proof = seal(self._secrets, _FLOW, b"", context=f"{name} {text}")
        return Secret(f"{text}.{encode_base64url(proof)}")

    def verify_flow(self, name: str, text: str) -> str:
        """Return the cookie that `sign_flow` got, or "" if this gateway has not set it."""
        cookie, _, proof = text.rpartition(".")
        try:
            open_sealed(self._secrets, _FLOW, decode_base64url(proof), context=f"{name} {cookie}")
        except (SignatureError, ValueError):
            return ""
        return cookie

    async def use_flow(self, flow: str, until: float) -> bool:
        """Note that the response to a sign-in was used. Report whether it is its first use."""
        return await mark_seen(self.store, "sign-in", flow, until)

    def open_tokens(self, session: PersonSession) -> ProviderTokens:
        """Return the provider's tokens. Raises AIIPError `aiip.sign-in-required` if they do not open."""
        try:
            text = open_sealed(
                self._secrets, _TOKENS, session.sealed_tokens, context=session.digest, own=session.secret
            )
        except SignatureError:
            raise make_sign_in_required() from None
        tokens = msgspec.msgpack.decode(text, type=_Tokens)
        refresh = None if tokens.refresh is None else Secret(tokens.refresh)
        return ProviderTokens(
            access=Secret(tokens.access),
            id_token=Secret(tokens.id_token),
            refresh=refresh,
            expires=tokens.expires,
        )

    async def replace_tokens(self, session: PersonSession, tokens: ProviderTokens) -> None:
        """Keep refreshed tokens. Raises AIIPError `aiip.sign-in-required` if the session has ended."""
        current = await self._load(session.digest, session.secret)
        while current is not None:
            record = _Record(current.seen, self._seal_profile(current), self._seal_tokens(current, tokens))
            if await self._replace(current, record):
                return
            current = await self._load(session.digest, session.secret)
        raise make_sign_in_required()

    async def refresh_tokens(self, session: PersonSession, refresh: TokenRefresh) -> ProviderTokens:
        """Return the provider's tokens after `refresh` has renewed them, at most once in 30 seconds.

        Providers accept a refresh token once. So one request of all processes renews the tokens, and the
        others wait for it. Raises AIIPError `aiip.sign-in-required` if the session has ended meanwhile,
        and what `refresh` raises.
        """
        key = make_key("token-refresh", session.digest)
        until = self._now() + _REFRESH_SECONDS
        if not await self.store.put_new(key, b"", until):
            return await self._wait_for_refresh(session, key)
        try:
            tokens = await refresh(await self._reopen_tokens(session))
            await self.replace_tokens(session, tokens)
        finally:
            await self.store.put(key, _DONE, until)
        return tokens

    async def _wait_for_refresh(self, session: PersonSession, key: str) -> ProviderTokens:
        for _ in range(int(_REFRESH_SECONDS / _POLL_SECONDS)):
            claim = await self.store.get(key)
            if claim is None or claim.value == _DONE:
                break
            await asyncio.sleep(_POLL_SECONDS)
        return await self._reopen_tokens(session)

    async def _reopen_tokens(self, session: PersonSession) -> ProviderTokens:
        """Return the tokens that are in the store now."""
        current = await self._load(session.digest, session.secret)
        if current is None:
            raise make_sign_in_required()
        return self.open_tokens(current)

    async def put_data(
        self, session: PersonSession, name: str, data: bytes, until: float | None = None
    ) -> None:
        """Keep data for a session until its end, or until then. Only its cookie opens it.

        Slashes in `name` make folders, which `find_data` lists.
        Raises AIIPError `aiip.sign-in-required`, and keeps nothing, if the session has ended.
        """
        end = session.expires if until is None else min(until, session.expires)
        await self._put_data(session, _data_key(session.digest, name), data, end)
        # a sign-out either sees the data, or has deleted the record before
        if await self._load(session.digest, None) is None:
            await self.delete_data(session, name)
            raise make_sign_in_required()

    async def get_data(self, session: PersonSession, name: str) -> bytes | None:
        """Return the data of this name, or None."""
        key = _data_key(session.digest, name)
        found = await self.store.get(key)
        return None if found is None else self._open_data(session, key, found.value)

    async def find_data(self, session: PersonSession, folder: str) -> list[bytes]:
        """Return the data of all names that begin with `folder` and a slash, at most `MAX_FOUND`."""
        rows = await self.store.find(_data_key(session.digest, folder) + "/", limit=MAX_FOUND)
        found = [self._open_data(session, key, row.value) for key, row in rows]
        return [data for data in found if data is not None]

    async def delete_data(self, session: PersonSession, name: str) -> None:
        """Delete the data of this name."""
        await self.store.delete(_data_key(session.digest, name))

    async def _put_data(self, session: PersonSession, key: str, data: bytes, end: float) -> None:
        # the context is the whole key, so no value opens under another name or in another session
        await self.store.put(key, seal(self._secrets, _DATA, data, context=key, own=session.secret), end)

    def _open_data(self, session: PersonSession, key: str, sealed: bytes) -> bytes | None:
        try:
            return open_sealed(self._secrets, _DATA, sealed, context=key, own=session.secret)
        except SignatureError:
            return None

    def _now(self) -> float:
        return self._clock().timestamp()

    def _end_of(self, session: PersonSession) -> float:
        """Return when a session ends if it is not used again."""
        return min(self._now() + self._idle, session.expires)

    async def _load(self, digest: str, secret: Secret | None) -> PersonSession | None:
        found = await self.store.get(_record_key(digest))
        if found is None or found.until <= self._now():
            return None
        try:
            record = msgspec.msgpack.decode(found.value, type=_Record)
            text = open_sealed(self._secrets, _PERSON, record.profile, context=digest)
            profile = msgspec.msgpack.decode(text, type=_Profile)
        except (msgspec.DecodeError, SignatureError):
            # changed, moved here from another session, or of a secret that was rotated out
            return None
        now = self._now()
        if profile.expires <= now or record.seen + self._idle <= now:
            return None
        return PersonSession(
            digest=digest,
            provider=profile.provider,
            client_id=profile.client_id,
            person=Person(
                issuer=profile.issuer,
                subject=profile.subject,
                name=profile.name,
                email=profile.email,
                acr=profile.acr,
                amr=profile.amr,
                auth_time=profile.auth_time,
                sid=profile.sid,
            ),
            created=profile.created,
            seen=record.seen,
            expires=profile.expires,
            browser=profile.browser,
            secret=secret,
            version=found.version,
            sealed_tokens=record.tokens,
        )

    async def _replace(self, session: PersonSession, record: _Record) -> bool:
        """Write a record unless the session was changed or has ended since it was read."""
        key, value = _record_key(session.digest), msgspec.msgpack.encode(record)
        return await self.store.replace(key, value, self._end_of(session), version=session.version)

    def _seal_profile(self, session: PersonSession) -> bytes:
        person = session.person
        profile = _Profile(
            provider=session.provider,
            client_id=session.client_id,
            issuer=person.issuer,
            subject=person.subject,
            name=person.name,
            email=person.email,
            acr=person.acr,
            amr=person.amr,
            auth_time=person.auth_time,
            sid=person.sid,
            created=session.created,
            expires=session.expires,
            browser=session.browser,
        )
        return seal(self._secrets, _PERSON, msgspec.msgpack.encode(profile), context=session.digest)

    def _seal_tokens(self, session: PersonSession, tokens: ProviderTokens) -> bytes:
        refresh = None if tokens.refresh is None else tokens.refresh.reveal()
        kept = _Tokens(tokens.access.reveal(), tokens.id_token.reveal(), refresh, tokens.expires)
        text: Any = msgspec.msgpack.encode(kept)
        return seal(self._secrets, _TOKENS, text, context=session.digest, own=session.secret)

    async def _make_room(self, person: Person) -> None:
        prefix = _person_prefix(person.issuer, person.subject)
        if await self.store.count(prefix) >= MAX_SESSIONS:
            sessions = await self.list_sessions(person)
            await self._end(sessions[MAX_SESSIONS - 1 :])

    async def _was_signed_out(self, person: Person, began: float) -> bool:
        found = await self.store.get(_person_tombstone_key(person.issuer, person.subject))
        if found is not None and began <= float(found.value):
            return True
        if person.sid is None:
            return False
        found = await self.store.get(_sid_tombstone_key(person.issuer, person.sid))
        if found is None:
            return False
        at = float(found.value)
        # whoever authenticated before the end of the provider's session did it in that session
        return began <= at or (person.auth_time is not None and person.auth_time < int(at))

    async def _end_indexed(self, prefix: str) -> int:
        ended = 0
        while keys := [key for key, _ in await self.store.find(prefix, limit=MAX_FOUND)]:
            digests = [key.removeprefix(prefix) for key in keys]
            found = [await self._load(digest, None) for digest in digests]
            sessions = [session for session in found if session is not None]
            await self._end(sessions)
            # those that ended before, or do not open any more
            for digest, key in zip(digests, keys, strict=True):
                await self.store.delete(_record_key(digest))
                await self.store.delete(key)
            ended += len(sessions)
        return ended

    async def _end(self, sessions: Sequence[PersonSession]) -> None:
        for session in sessions:
            await self._delete(session)
        if sessions:
            for listener in self._listeners:
                await listener(sessions)

    async def _delete(self, session: PersonSession) -> None:
        # the record first: without it nobody is signed in
        await self.store.delete(_record_key(session.digest))
        for key, _ in await self.store.find(f"session/{session.digest}/", limit=MAX_FOUND):
            await self.store.delete(key)
        for key in _list_index_keys(session):
            await self.store.delete(key)


def is_same_person(first: Person, second: Person) -> bool:
    """Report whether two sign-ins are of one person."""
    return (first.issuer, first.subject) == (second.issuer, second.subject)


def make_sign_in_required() -> AIIPError:
    """Return the error of a request that needs a signed-in person."""
    return AIIPError(
        "you are not signed in at this gateway, or your session has ended",
        code="aiip.sign-in-required",
        hint="Sign in, then try again.",
    )


def build_step_up_path(target: str, *, acr_values: Sequence[str] = (), max_age: int | None = None) -> str:
    """Return the path that asks for such a sign-in (RFC 9470), and leads to `target` after it."""
    members = {"acr_values": " ".join(acr_values), "max_age": "" if max_age is None else str(max_age)}
    return f"/auth/step-up?{urlencode({**{k: v for k, v in members.items() if v}, 'next': target})}"


def describe_browser(user_agent: str) -> str:
    """Return the browser and the system of a User-Agent in a few words, such as "Firefox on Linux"."""
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), "")
    return " on ".join(filter(None, (browser or "A browser", system))) if browser or system else ""


#: the first mark that a User-Agent contains counts: most browsers name older ones too
_BROWSERS: Final = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("CriOS/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def _record_key(digest: str) -> str:
    return f"session/{digest}/record"


def _data_key(digest: str, name: str) -> str:
    return f"session/{digest}/data/" + (make_key(*name.split("/")) if name else "")


def _person_prefix(issuer: str, subject: str) -> str:
    return make_key("person", f"{issuer} {subject}", "session") + "/"


def _sid_prefix(issuer: str, sid: str) -> str:
    return make_key("provider-session", f"{issuer} {sid}") + "/"


def _person_tombstone_key(issuer: str, subject: str) -> str:
    return make_key("signed-out", "person", f"{issuer} {subject}")


def _sid_tombstone_key(issuer: str, sid: str) -> str:
    return make_key("signed-out", "session", f"{issuer} {sid}")


def _list_index_keys(session: PersonSession) -> list[str]:
    person = session.person
    keys = [_person_prefix(person.issuer, person.subject) + session.digest]
    if person.sid is not None:
        keys.append(_sid_prefix(person.issuer, person.sid) + session.digest)
    return keys
