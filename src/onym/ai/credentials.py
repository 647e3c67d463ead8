"""Credentials of a client: where its access tokens come from.

shop = Registration(issuer="https://login.bank.example", client_id="shop", secret=Secret(...))
with AIClient(credentials=ClientCredentials([shop])) as client: ...
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from onym.ai.exchange import DPoPNonces
from onym.ai.oauth import ID_TOKEN_TYPE, Grant, OAuthClient, Target
from onym.ai.oauth_metadata import Registration, choose_registration
from onym.ai.records import Auth, Effects, Level, Resolution
from onym.ai.settings import ResolverSettings
from onym.ai.sign_ins import MAX_SIGN_INS, SignIn, SignIns, open_sign_ins
from onym.errors import AuthorizationError, strip_frames
from onym.net.messages import Flow, Wait, Work
from onym.sign.dpop import DPoPKey, generate_dpop_key
from onym.uri.secret import Secret

T = TypeVar("T")

#: seconds before its end when a token is replaced
_MARGIN: Final = 30.0
#: seconds between two looks at a refresh by another request, and how many: by one of this process, and by
#: another process that has just used the refresh token
_WAIT_SECONDS: Final = 0.1
_MOST_WAITS: Final = 300
_MOST_LOOKS: Final = 5
#: tokens in memory; a new one replaces the least recently used
_MAX_TOKENS: Final = 1000
_CLAUSE: Final = "AIIP/HTTPS v1 3.10"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """An access token for one authority, and the client ID that it was issued to.

    `dpop_key` is the key that it is bound to; None for a Bearer token. `expires` is in seconds since the
    epoch, None if that is not known.
    """

    token: Secret
    client_id: str
    dpop_key: DPoPKey | None = None
    expires: float | None = None


class Credentials(Protocol):
    """Obtains the token for a request. Threads and coroutines share one object.

    A client asks its `Credentials` before every request. They return a token only for an authority that
    accepts tokens of an authorization server which they know, and with the scopes of the resource. Tokens
    that were obtained are kept in memory until 30 seconds before their end.
    """

    def obtain(
        self, resolution: Resolution, *, scopes: Collection[str], effects: Effects
    ) -> Flow[Credential | None]:
        """Return the token for this authority, None to call it without one.

        `scopes` are those that the resource requires, `effects` its effects. Raises AuthorizationError.
        """
        ...

    def forget(self, token: Secret) -> None:
        """Stop using this token: the resource does not accept it."""
        ...


class StaticCredentials:
    """One token, for one authority (the host of its ai URIs, with the port if that is not 443)."""

    def __init__(
        self, token: Secret, client_id: str, *, authority: str, dpop_key: DPoPKey | None = None
    ) -> None:
        self._authority = authority
        self._credential = Credential(token=token, client_id=client_id, dpop_key=dpop_key)

    def obtain(
        self, resolution: Resolution, *, scopes: Collection[str], effects: Effects
    ) -> Flow[Credential | None]:
        """Return the token for its own authority, None for any other."""
        yield from ()
        return self._credential if resolution.authority == self._authority else None

    def forget(self, token: Secret) -> None:
        """Do nothing: there is no other token."""


class TokenCache:
    """Tokens and DPoP keys in memory, by owner and purpose, at most `limit` of each. Threads share it.

    The key of a token names its owner (a person or a client), authority, issuer, resource, scopes and
    details, so that no caller gets the token of another one.
    """

    def __init__(self, limit: int = _MAX_TOKENS) -> None:
        self._limit = max(1, limit)
        self._tokens: OrderedDict[tuple[object, ...], Credential] = OrderedDict()
        self._keys: OrderedDict[tuple[object, ...], DPoPKey] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[object, ...], now: float) -> Credential | None:
        """Return the token, unless it ends within 30 seconds."""
        with self._lock:
            found = self._tokens.get(key)
            if found is None or found.expires is None or found.expires - _MARGIN <= now:
                self._tokens.pop(key, None)
                return None
            self._tokens.move_to_end(key)
            return found

    def put(self, key: tuple[object, ...], credential: Credential) -> None:
        """Keep a token."""
        with self._lock:
            self._tokens[key] = credential
            if len(self._tokens) > self._limit:
                self._tokens.popitem(last=False)

    def forget(self, token: Secret) -> None:
        """Remove a token."""
        with self._lock:
            for key in [key for key, kept in self._tokens.items() if kept.token == token]:
                del self._tokens[key]

    def forget_owner(self, owner: object) -> None:
        """Remove all tokens and keys of this owner, whose session has ended."""
        with self._lock:
            for kept in (self._tokens, self._keys):
                for key in [key for key in kept if key[0] == owner]:
                    del kept[key]

    def get_dpop_key(self, owner: object, authority: str, issuer: str) -> DPoPKey:
        """Return the key for this owner, authority and issuer, so that no two of them can be linked by it."""
        key = (owner, authority, issuer)
        with self._lock:
            found = self._keys.get(key)
            if found is None:
                found = self._keys[key] = generate_dpop_key()
                if len(self._keys) > self._limit:
                    self._keys.popitem(last=False)
            self._keys.move_to_end(key)
            return found


class _Requested:
    """Credentials that request their tokens from the authorization server of an authority.

    `owner` is who the tokens belong to in the cache. `confirm` is a flow that runs before a new token is kept
    and used; it raises an error to drop the token.
    """

    def __init__(
        self,
        registrations: Iterable[Registration],
        owner: object,
        *,
        settings: ResolverSettings | None = None,
        cache: TokenCache | None = None,
        nonces: DPoPNonces | None = None,
        confirm: Callable[[], Flow[None]] | None = None,
    ) -> None:
        self._registrations = tuple(registrations)
        self._owner = owner
        self._confirm = confirm
        self._settings = settings or ResolverSettings()
        self._cache = TokenCache() if cache is None else cache
        self._nonces = nonces or DPoPNonces()

    def obtain(
        self, resolution: Resolution, *, scopes: Collection[str], effects: Effects
    ) -> Flow[Credential | None]:
        """Return a token of a known authorization server that the authority names.

        None if the authority names no server, or if the resource is open to everybody. Raises
        AuthorizationError.
        """
        if not needs_token(resolution, scopes, effects):
            return None
        document = resolution.document
        registration = choose_registration(
            document.authorization_servers, self._registrations, target=resolution.authority
        )
        target = make_target(resolution, scopes, registration)
        key = (self._owner, resolution.authority, registration.issuer, target.resource, target.scopes)
        kept = self._cache.get(key, self._settings.clock())
        if kept is not None:
            return kept
        dpop_key = None
        if target.dpop is not Level.NONE:
            dpop_key = self._cache.get_dpop_key(self._owner, resolution.authority, registration.issuer)
        grant = yield from self._request(self._make_client(registration, dpop_key), target)
        if self._confirm is not None:
            yield from self._confirm()
        credential = _make_credential(grant, registration)
        self._cache.put(key, credential)
        return credential

    def forget(self, token: Secret) -> None:
        """Request another token next time."""
        self._cache.forget(token)

    def _make_client(self, registration: Registration, dpop_key: DPoPKey | None) -> OAuthClient:
        return OAuthClient(
            registration=registration, settings=self._settings, dpop_key=dpop_key, nonces=self._nonces
        )

    def _request(self, client: OAuthClient, target: Target) -> Flow[Grant]:
        raise NotImplementedError


class ClientCredentials(_Requested):
    """Tokens for the client itself (RFC 6749 4.4): a service that acts in its own name.

    `registrations` are the authorization servers that it knows. `settings` are those of the client that uses
    it: their clock, timeout and cache. A `cache` may be shared with other credentials.
    """

    def __init__(
        self,
        registrations: Iterable[Registration],
        *,
        settings: ResolverSettings | None = None,
        cache: TokenCache | None = None,
        nonces: DPoPNonces | None = None,
    ) -> None:
        super().__init__(registrations, "client", settings=settings, cache=cache, nonces=nonces)

    def _request(self, client: OAuthClient, target: Target) -> Flow[Grant]:
        return client.request_client_credentials(target)


class ExchangedCredentials(_Requested):
    """Tokens for a person, exchanged for a token of that person (RFC 8693).

    `subject_token` is the person's token, of type `subject_type`. `actor_token` is the client's own, for a
    server that asks for one. The token itself is never sent to an authority, only to a server of
    `registrations`. `confirm` is a flow that runs before a new token is kept and used; it raises an error to
    drop the token.
    """

    def __init__(
        self,
        registrations: Iterable[Registration],
        subject_token: Secret,
        *,
        subject_type: str | None = None,
        actor_token: Secret | None = None,
        settings: ResolverSettings | None = None,
        cache: TokenCache | None = None,
        nonces: DPoPNonces | None = None,
        confirm: Callable[[], Flow[None]] | None = None,
    ) -> None:
        owner = hash_owner(subject_token)
        super().__init__(registrations, owner, settings=settings, cache=cache, nonces=nonces, confirm=confirm)
        self._subject_token = subject_token
        self._types = {} if subject_type is None else {"subject_type": subject_type}
        self._actor_token = actor_token

    def _request(self, client: OAuthClient, target: Target) -> Flow[Grant]:
        return client.exchange_token(
            self._subject_token, target, actor_token=self._actor_token, **self._types
        )


class AssertedCredentials(_Requested):
    """Tokens for a person by an identity assertion of the person's OpenID provider (ID-JAG).

    `provider` is this client's registration at the provider, and `subject_token` the person's ID token there
    (or a token of type `subject_type`). The grant is requested for the authorization server of the authority,
    and redeemed there once. `confirm` is as for `ExchangedCredentials`.
    """

    def __init__(
        self,
        registrations: Iterable[Registration],
        provider: Registration,
        subject_token: Secret,
        *,
        subject_type: str = ID_TOKEN_TYPE,
        settings: ResolverSettings | None = None,
        cache: TokenCache | None = None,
        nonces: DPoPNonces | None = None,
        confirm: Callable[[], Flow[None]] | None = None,
    ) -> None:
        owner = hash_owner(subject_token)
        super().__init__(registrations, owner, settings=settings, cache=cache, nonces=nonces, confirm=confirm)
        self._provider = provider
        self._subject_token = subject_token
        self._subject_type = subject_type

    def _request(self, client: OAuthClient, target: Target) -> Flow[Grant]:
        issuer = self._make_client(self._provider, client.dpop_key)
        assertion = yield from issuer.request_id_jag(
            self._subject_token,
            target,
            audience=client.registration.issuer,
            client_id=client.registration.client_id,
            subject_type=self._subject_type,
        )
        return (yield from client.redeem_id_jag(assertion, target))


def hash_owner(token: Secret) -> str:
    """Return the name of a token's owner in a `TokenCache`, which does not contain the token."""
    return hashlib.sha256(token.reveal().encode()).hexdigest()


def needs_token(resolution: Resolution, scopes: Collection[str], effects: Effects) -> bool:
    """Report whether a request needs a token that can be had: an open read is not made in anybody's name."""
    document = resolution.document
    if not document.authorization_servers:
        return False
    return document.requirements.auth is Auth.OAUTH2 or bool(scopes) or effects is not Effects.READ


def make_target(resolution: Resolution, scopes: Collection[str], registration: Registration) -> Target:
    """Return what a token for this resource must be for, and how it must be bound."""
    document = resolution.document
    return Target(
        resource=document.resource or document.service,
        scopes=tuple(sorted(set(scopes))),
        dpop=document.requirements.dpop,
        mtls=document.requirements.mtls and registration.identity is not None,
    )


def _make_credential(grant: Grant, registration: Registration) -> Credential:
    return Credential(
        token=grant.token,
        client_id=registration.client_id,
        dpop_key=grant.dpop_key,
        expires=grant.expires,
    )


class StoredCredentials:
    """The tokens of a person who has signed in with `onym ai login`; they are refreshed when they end.

    `store` is where the sign-ins are (default: the keyring, or the folder of `ONYM_SIGN_INS`). A token goes
    only to the authority that the person signed in for, and only while its discovery document names the same
    authorization server and the same resource.
    """

    def __init__(
        self,
        store: SignIns | None = None,
        *,
        settings: ResolverSettings | None = None,
        nonces: DPoPNonces | None = None,
    ) -> None:
        self._store = store or open_sign_ins(os.environ)
        self._settings = settings or ResolverSettings()
        self._nonces = nonces or DPoPNonces()
        self._loaded: OrderedDict[str, SignIn] = OrderedDict()
        #: the sign-ins that are being refreshed
        self._refreshing: dict[str, object] = {}

    def obtain(
        self, resolution: Resolution, *, scopes: Collection[str], effects: Effects
    ) -> Flow[Credential | None]:
        """Return the person's token for this authority, None without a sign-in or for an open read.

        Raises AuthorizationError: `aiip.insufficient-scope` if the sign-in lacks a scope,
        `aiip.authentication-required` if it has ended.
        """
        document, name = resolution.document, resolution.authority
        if not needs_token(resolution, scopes, effects):
            return None
        sign_in = yield from self._load(name)
        if sign_in is None:
            return None
        resource = document.resource or document.service
        if sign_in.registration.issuer not in document.authorization_servers or sign_in.resource != resource:
            raise self._make_error(
                f"{name} now accepts tokens of another authorization server or for another resource",
                "aiip.authorization-unavailable",
                f"Nothing was sent. If you trust the change, sign in again: onym ai login {name}.",
            )
        lacking = sorted(set(scopes) - set(sign_in.scopes))
        if lacking:
            flags = " ".join(f"--scope {scope}" for scope in sorted({*sign_in.scopes, *scopes}))
            raise self._make_error(
                f"your sign-in for {name} lacks the scope {' '.join(lacking)}",
                "aiip.insufficient-scope",
                f"Sign in again: onym ai login {name} {flags}.",
            )
        return (yield from self.obtain_token(name))

    def obtain_token(self, name: str) -> Flow[Credential | None]:
        """Return the person's token for an authority or the origin of a gateway, without other checks."""
        sign_in = yield from self._load(name)
        if sign_in is None:
            return None
        if sign_in.expires - _MARGIN <= self._settings.clock():
            sign_in = yield from self._refresh_once(sign_in)
        return Credential(
            token=sign_in.token,
            client_id=sign_in.registration.client_id,
            dpop_key=sign_in.dpop_key,
            expires=sign_in.expires,
        )

    def forget(self, token: Secret) -> None:
        """Refresh the token before the next request."""
        for name, kept in list(self._loaded.items()):
            if kept.token == token:
                self._loaded[name] = replace(kept, expires=0.0)

    def _load(self, name: str) -> Flow[SignIn | None]:
        found = self._loaded.get(name)
        if found is None:
            found = yield Work(lambda: self._store.load(name))
            if found is not None:
                self._keep(found)
        return found

    def _keep(self, sign_in: SignIn) -> None:
        self._loaded[sign_in.name] = sign_in
        if len(self._loaded) > MAX_SIGN_INS:
            self._loaded.popitem(last=False)

    def _refresh_once(self, sign_in: SignIn) -> Flow[SignIn]:
        """Refresh the sign-in, or wait until another request of this process has done so.

        A server may end a sign-in whose replaced refresh token comes once more.
        """
        name, turn = sign_in.name, object()
        for _ in range(_MOST_WAITS):
            if self._refreshing.setdefault(name, turn) is turn:
                break
            yield Wait(_WAIT_SECONDS)
            sign_in = self._loaded.get(name, sign_in)
            if sign_in.expires - _MARGIN > self._settings.clock():
                return sign_in
        try:
            return (yield from self._refresh(sign_in))
        finally:
            self._refreshing.pop(name, None)

    def _load_newer(self, sign_in: SignIn) -> Flow[SignIn | None]:
        """Return the stored sign-in if another process has refreshed it; raise if it has ended."""
        stored: SignIn | None = yield Work(lambda: self._store.load(sign_in.name))
        if stored is None:
            self._loaded.pop(sign_in.name, None)
            raise self._make_end(sign_in.name)
        if stored.token == sign_in.token:
            return None
        self._keep(stored)
        return stored

    def _refresh(self, sign_in: SignIn) -> Flow[SignIn]:
        """Return the sign-in with a new token, which another process may have requested already."""
        name = sign_in.name
        newer = yield from self._load_newer(sign_in)
        if newer is not None:
            if newer.expires - _MARGIN > self._settings.clock():
                return newer
            sign_in = newer
        if sign_in.refresh_token is None:
            self._loaded.pop(name, None)
            raise self._make_end(name)
        client = OAuthClient(
            registration=sign_in.registration,
            settings=self._settings,
            dpop_key=sign_in.dpop_key,
            nonces=self._nonces,
        )
        target = Target(resource=sign_in.resource, scopes=sign_in.scopes, dpop=sign_in.dpop)
        try:
            grant = yield from client.refresh(sign_in.refresh_token, target)
        except AuthorizationError as error:
            if error.oauth_error == "invalid_grant":
                newer = yield from self._wait_for_newer(sign_in)
                if newer is not None:
                    return newer
                self._loaded.pop(name, None)
                error.hint = f"Your sign-in has ended. Sign in again: onym ai login {name}."
            raise strip_frames(error)  # noqa: B904 - without its frames, which have seen the tokens
        renewed = replace(
            sign_in,
            token=grant.token,
            expires=grant.expires,
            scopes=tuple(sorted(grant.scopes)) or sign_in.scopes,
            refresh_token=grant.refresh_token or sign_in.refresh_token,
        )
        yield Work(lambda: self._store.save(renewed))
        self._keep(renewed)
        return renewed

    def _wait_for_newer(self, sign_in: SignIn) -> Flow[SignIn | None]:
        """Return the sign-in of another process that has just used the same refresh token."""
        for _ in range(_MOST_LOOKS):
            newer = yield from self._load_newer(sign_in)
            if newer is not None:
                return newer
            yield Wait(_WAIT_SECONDS)
        return None

    def _make_end(self, name: str) -> AuthorizationError:
        message, hint = f"your sign-in for {name} has ended", f"Sign in again: onym ai login {name}."
        return self._make_error(message, "aiip.authentication-required", hint)

    def _make_error(self, message: str, code: str, hint: str) -> AuthorizationError:
        return AuthorizationError(message, code=code, clause=_CLAUSE, hint=hint)
