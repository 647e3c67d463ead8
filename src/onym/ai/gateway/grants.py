"""Access tokens for people: how a gateway gets a token of an authority for a person who signed in (3.10)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final, NoReturn

from onym.ai import credentials as credential_sources
from onym.ai.exchange import DPoPNonces
from onym.ai.oauth import Grant, OAuthClient
from onym.ai.oauth_metadata import Registration, choose_registration
from onym.ai.records import Effects, Resolution
from onym.ai.settings import ResolverSettings
from onym.errors import AIIPError, AuthorizationError, ConnectionRequired
from onym.net.messages import Flow, Work
from onym.uri.secret import Secret

#: seconds before its end after which the token of a connection is renewed
_MARGIN: Final = 30.0
#: seconds for which a session that has ended gets no token: longer than a request to a server takes
_ENDED_SECONDS: Final = 600.0
#: sessions whose tokens are known by their owner
_MOST_SUBJECTS: Final = 10_000
_CLAUSE: Final = "AIIP/HTTPS v1 3.10"


class Route(StrEnum):
    """One way to a token, in the order of preference."""

    ID_JAG = "id-jag"
    EXCHANGE = "exchange"
    CONNECT = "connect"
    SERVICE = "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantServer:
    """An authorization server that the operator of the gateway knows.

    `registration` is the gateway's. `assertions_of` are the issuers of providers whose identity assertions it
    redeems, `tokens_of` those whose access tokens it exchanges; a server may exchange its own. `connect` and
    `service` allow these routes. `scopes` are all scopes that the gateway may ask for (None: those of the
    authority's document), `authorities` those that it may be used for (None: every authority whose document
    names the server).
    """

    registration: Registration
    assertions_of: frozenset[str] = frozenset()
    tokens_of: frozenset[str] = frozenset()
    connect: bool = True
    service: bool = False
    scopes: frozenset[str] | None = None
    authorities: frozenset[str] | None = None

    @property
    def issuer(self) -> str:
        """The server's identifier."""
        return self.registration.issuer


@dataclass(frozen=True, slots=True)
class ChosenGrant:
    """The server whose token a request gets, and the route to it."""

    server: GrantServer
    route: Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The tokens that a person got at a server, by signing in there, for one authority and its resource.

    One server may issue the tokens of many authorities, so the server alone does not tell where a token may
    go.
    """

    issuer: str
    authority: str
    resource: str
    grant: Grant = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The person (or the program that acts for a person) whom a token is for.

    `id` names the session or the program's token, by its hash. `provider` is the issuer at which the person
    signed in, with the tokens that it issued to the gateway. `connections` are those that the person made,
    and `save_connection` makes the step that stores a renewed one. `check_live` makes the step that tells
    whether the session still exists, in the store of all gateways. `is_program` excludes `connect`, which
    needs a browser.
    """

    id: str
    provider: str
    access_token: Secret | None = field(default=None, repr=False)
    id_token: Secret | None = field(default=None, repr=False)
    connections: Collection[Connection] = field(default=(), repr=False, compare=False)
    save_connection: Callable[[Connection], Work] | None = field(default=None, repr=False, compare=False)
    check_live: Callable[[], Work] | None = field(default=None, repr=False, compare=False)
    is_program: bool = False


class GrantBroker:
    """Gets and keeps the tokens of all people of one gateway, in memory until 30 seconds before their end.

    `servers` are those that the operator knows. `providers` are the gateway's registrations where people sign
    in. Threads and coroutines share one object.

    The authorization server must be named by the authority's discovery document and be known to the operator:
    no document alone decides where a person's token goes. Four routes lead to a token, and the first that
    fits is taken:

    1. `id-jag`: the person's provider issues an identity assertion for the server, which redeems it;
    2. `exchange`: the server exchanges the person's own token, and names the gateway as the actor;
    3. `connect`: the person once signed in at the server for this authority; their session has the token;
    4. `service`: the gateway asks in its own name, only to read, and only if the operator allows it.

    If a route fails, no other is tried: a server that is down does not change whose authority is used.
    """

    def __init__(
        self,
        servers: Collection[GrantServer],
        providers: Collection[Registration],
        settings: ResolverSettings,
    ) -> None:
        self._servers = {server.issuer: server for server in servers}
        self._providers = {provider.issuer: provider for provider in providers}
        self._settings = settings
        self._cache = credential_sources.TokenCache()
        self._nonces = DPoPNonces()
        self._lock = threading.Lock()
        #: the owners in the cache of a session's tokens
        self._owners: OrderedDict[str, set[str]] = OrderedDict()
        self._ended: OrderedDict[str, float] = OrderedDict()

    @property
    def servers(self) -> tuple[GrantServer, ...]:
        """The servers that the operator knows."""
        return tuple(self._servers.values())

    def find_server(self, issuer: str) -> GrantServer | None:
        """Return the operator's row for a server, or None if it is not known."""
        return self._servers.get(issuer)

    def make_client(self, server: GrantServer) -> OAuthClient:
        """Return the client for a connection of a person, whose tokens have a DPoP key of their own."""
        return OAuthClient(registration=server.registration, settings=self._settings, nonces=self._nonces)

    def obtain(
        self,
        resolution: Resolution,
        subject: Subject | None,
        grant: ChosenGrant | None,
        *,
        scopes: Collection[str],
        effects: Effects,
    ) -> Flow[credential_sources.Credential | None]:
        """Return the token of a chosen route for a request to this authority; None for one without a token.

        `scopes` are those that the resource requires. Raises AuthorizationError: with the code
        `aiip.authorization-unavailable` if the server failed (then `retryable`), as ConnectionRequired if the
        connection has ended, and with the codes of `OAuthClient`; and AIIPError `aiip.sign-in-required` if
        the session ended in the meantime.
        """
        if grant is None:
            return None
        flow = self._obtain_by_route(resolution, subject, grant, scopes, effects)
        telemetry = self._settings.telemetry
        return (yield from flow if telemetry is None else telemetry.observe_grant(str(grant.route), flow))

    def _obtain_by_route(
        self,
        resolution: Resolution,
        subject: Subject | None,
        grant: ChosenGrant,
        scopes: Collection[str],
        effects: Effects,
    ) -> Flow[credential_sources.Credential | None]:
        if grant.route is Route.CONNECT and subject is not None:
            return (yield from self._use_connection(resolution, grant.server, subject, scopes))
        credentials = self._make_credentials(grant, subject)
        credential = yield from credentials.obtain(resolution, scopes=scopes, effects=effects)
        if subject is not None:
            self._require_live(subject)
        return credential

    def choose_server(self, resolution: Resolution, scopes: Collection[str]) -> GrantServer:
        """Return the server whose tokens the authority accepts and that may be asked for these scopes.

        Raises AuthorizationError `aiip.authorization-unavailable`.
        """
        rows = [
            server.registration
            for server in self._servers.values()
            if server.authorities is None or resolution.authority in server.authorities
        ]
        target = str(resolution.uri.without_query)
        chosen = choose_registration(resolution.document.authorization_servers, rows, target=target)
        server = self._servers[chosen.issuer]
        self._require_scopes(resolution, server, scopes)
        return server

    def choose_grant(
        self, resolution: Resolution, subject: Subject | None, *, scopes: Collection[str], effects: Effects
    ) -> ChosenGrant | None:
        """Return the server and the first route that fits a request, None for a request without a token.

        `scopes` are those that the resource requires. Raises AuthorizationError: with the code
        `aiip.authorization-unavailable` if no route fits, as ConnectionRequired if the person can connect;
        and AIIPError `aiip.sign-in-required` if only a person could get a token.
        """
        if not credential_sources.needs_token(resolution, scopes, effects):
            return None
        server = self.choose_server(resolution, scopes)
        tried = []
        for route in Route:
            obstacle = _find_obstacle(route, server, subject, resolution, self._providers, effects)
            if obstacle is None:
                return ChosenGrant(server, route)
            tried.append(f"{route}: {obstacle}")
        if subject is None:
            raise AIIPError(
                f"{resolution.authority} accepts this request only from a person who is signed in",
                code="aiip.sign-in-required",
                clause=_CLAUSE,
                hint="Sign in at this gateway.",
            )
        if not subject.is_program and server.connect:
            why = (
                f"you are not connected to {server.issuer}, which issues the tokens of {resolution.authority}"
            )
            raise _make_connection_error(why, resolution, server)
        raise AuthorizationError(
            f"the gateway cannot get a token of {resolution.authority} for this caller ({'; '.join(tried)})",
            target=str(resolution.uri.without_query),
            clause=_CLAUSE,
            hint="Ask the operator of the gateway which sign-in this authority needs.",
        )

    def forget(self, token: Secret) -> None:
        """Stop using this token: the resource does not accept it."""
        self._cache.forget(token)

    def end_subject(self, identifier: str) -> None:
        """Forget all tokens of a session that has ended, and those that are on their way."""
        now = self._settings.clock()
        with self._lock:
            owners = self._owners.pop(identifier, set())
            self._ended[identifier] = now + _ENDED_SECONDS
            while self._ended and next(iter(self._ended.values())) <= now:
                self._ended.popitem(last=False)
        for owner in owners:
            self._cache.forget_owner(owner)

    def _require_live(self, subject: Subject) -> None:
        """Raise AIIPError, and forget the session's tokens, if the session ended in the meantime."""
        with self._lock:
            ended = self._ended.get(subject.id, 0.0) > self._settings.clock()
        if ended:
            self._refuse_ended(subject)

    def _confirm_live(self, subject: Subject) -> Flow[None]:
        """Raise as `_require_live`, also if another gateway has ended the session.

        StoreError says that it cannot be known.
        """
        self._require_live(subject)
        if subject.check_live is not None and not (yield subject.check_live()):
            self._refuse_ended(subject)

    def _refuse_ended(self, subject: Subject) -> NoReturn:
        for token in (subject.access_token, subject.id_token):
            if token is not None:
                self._cache.forget_owner(credential_sources.hash_owner(token))
        raise AIIPError(
            "the sign-in ended while a token was requested",
            code="aiip.sign-in-required",
            clause=_CLAUSE,
            hint="Sign in again.",
        )

    def _make_credentials(
        self, grant: ChosenGrant, subject: Subject | None
    ) -> credential_sources.Credentials:
        """Return the credentials of a route that fits."""
        rows = [grant.server.registration]
        if subject is None or grant.route is Route.SERVICE:
            return credential_sources.ClientCredentials(
                rows, settings=self._settings, cache=self._cache, nonces=self._nonces
            )
        shared: Any = {
            "settings": self._settings,
            "cache": self._cache,
            "nonces": self._nonces,
            "confirm": partial(self._confirm_live, subject),
        }
        if grant.route is Route.ID_JAG and subject.id_token is not None:
            self._note_owner(subject, subject.id_token)
            provider = self._providers[subject.provider]
            return credential_sources.AssertedCredentials(rows, provider, subject.id_token, **shared)
        if subject.access_token is None:  # pragma: no cover - `_find_obstacle` has checked it
            raise AuthorizationError("the sign-in has no token", clause=_CLAUSE)
        self._note_owner(subject, subject.access_token)
        return credential_sources.ExchangedCredentials(rows, subject.access_token, **shared)

    def _note_owner(self, subject: Subject, token: Secret) -> None:
        with self._lock:
            self._owners.setdefault(subject.id, set()).add(credential_sources.hash_owner(token))
            self._owners.move_to_end(subject.id)
            while len(self._owners) > _MOST_SUBJECTS:
                self._owners.popitem(last=False)

    def _require_scopes(self, resolution: Resolution, server: GrantServer, scopes: Collection[str]) -> None:
        """Raise AuthorizationError for a scope that the document does not list or the operator forbids."""
        listed = frozenset(resolution.document.scopes)
        limits = [limit for limit in (listed or None, server.scopes) if limit is not None]
        outside = sorted(scope for scope in scopes if any(scope not in limit for limit in limits))
        if outside:
            raise AuthorizationError(
                f"the resource requires the scope {outside[0]}, which the gateway may not ask for",
                target=str(resolution.uri.without_query),
                clause=_CLAUSE,
                hint="Ask the operator of the gateway to allow the scope.",
            )

    def _use_connection(
        self, resolution: Resolution, server: GrantServer, subject: Subject, scopes: Collection[str]
    ) -> Flow[credential_sources.Credential]:
        """Return the connection's own token while it is valid for the scopes, else refresh and store it."""
        connection = find_connection(subject, server, resolution)
        if connection is None:
            # the resolution may be another one than that for which the route was chosen
            raise _make_connection_error("you are not connected to the authority", resolution, server)
        grant = connection.grant
        if not grant.scopes.issuperset(scopes):
            why = "the connection to the authority lacks a scope"
            raise _make_connection_error(why, resolution, server)
        if grant.expires - _MARGIN <= self._settings.clock():
            grant = yield from self._renew_connection(resolution, server, subject, connection)
            yield from self._confirm_live(subject)
        return credential_sources.Credential(
            token=grant.token,
            client_id=server.registration.client_id,
            dpop_key=grant.dpop_key,
            expires=grant.expires,
        )

    def _renew_connection(
        self, resolution: Resolution, server: GrantServer, subject: Subject, connection: Connection
    ) -> Flow[Grant]:
        grant = connection.grant
        target = credential_sources.make_target(resolution, grant.scopes, server.registration)
        if grant.refresh_token is None:
            why = "the connection to the authority has ended"
            raise _make_connection_error(why, resolution, server)
        client = replace(self.make_client(server), dpop_key=grant.dpop_key)
        renewed = yield from client.refresh(grant.refresh_token, target)
        if renewed.refresh_token is None:
            renewed = replace(renewed, refresh_token=grant.refresh_token)
        if subject.save_connection is not None:
            # a server that rotates refresh tokens accepts the old one no more
            yield subject.save_connection(replace(connection, grant=renewed))
        return renewed


@dataclass(frozen=True, slots=True)
class SubjectCredentials:
    """The credentials of one request: those of `subject`, with the scopes and effects of its resource.

    `grant` is the route that the broker has chosen for them.
    """

    broker: GrantBroker
    subject: Subject | None
    scopes: frozenset[str]
    effects: Effects
    grant: ChosenGrant | None

    def obtain(
        self, resolution: Resolution, *, scopes: Collection[str], effects: Effects
    ) -> Flow[credential_sources.Credential | None]:
        """Return what `GrantBroker.obtain` returns; the resource's description is stronger than its entry."""
        wanted, grant = self.scopes.union(scopes), self.grant
        if wanted != self.scopes:
            grant = self.broker.choose_grant(resolution, self.subject, scopes=wanted, effects=self.effects)
        return self.broker.obtain(resolution, self.subject, grant, scopes=wanted, effects=self.effects)

    def forget(self, token: Secret) -> None:
        """Stop using this token."""
        self.broker.forget(token)


def find_connection(subject: Subject, server: GrantServer, resolution: Resolution) -> Connection | None:
    """Return the person's connection to a server for exactly this authority and resource, or None."""
    resource = credential_sources.make_target(resolution, (), server.registration).resource
    wanted = (server.issuer, resolution.authority, resource)
    for connection in subject.connections:
        if (connection.issuer, connection.authority, connection.resource) == wanted:
            return connection
    return None


def _find_obstacle(
    route: Route,
    server: GrantServer,
    subject: Subject | None,
    resolution: Resolution,
    providers: Collection[str],
    effects: Effects,
) -> str | None:
    """Return why a route does not fit, in a few words, or None if it fits."""
    if route is Route.SERVICE:
        if not server.service:
            return "not allowed"
        return None if effects is Effects.READ else f"not for {effects} effects"
    if subject is None:
        return "nobody is signed in"
    if route is Route.ID_JAG:
        known = subject.id_token is not None and subject.provider in providers
        return None if known and subject.provider in server.assertions_of else "no identity assertion"
    if route is Route.EXCHANGE:
        # a server that does not know the token must not see it
        if subject.provider not in {server.issuer, *server.tokens_of}:
            return "the server does not know the person's token"
        return None if subject.access_token is not None else "the person's token has ended"
    if not server.connect:
        return "not allowed"
    if subject.is_program:
        return "only for people with a browser"
    return "not connected" if find_connection(subject, server, resolution) is None else None


def _make_connection_error(message: str, resolution: Resolution, server: GrantServer) -> ConnectionRequired:
    error = ConnectionRequired(
        message,
        target=str(resolution.uri.without_query),
        clause=_CLAUSE,
        hint="Open the resource's page on this gateway and connect, then send the request again.",
    )
    error.issuer = server.issuer
    return error
