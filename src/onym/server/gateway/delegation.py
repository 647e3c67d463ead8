"""For whom a call is sent: what its effects demand of the caller, whose token it has, and connections.

A person who signed in acts through forms, whose tokens prove that the person sent them. A program acts for
the person whom its access token names (`onym.server.gateway.dependencies`). A call with neither is for
nobody: it may read what is open, and what the gateway may read in its own name.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.responses import RedirectResponse, Response

from onym.accounts.sign_in import sanitize_target
from onym.ai.credentials import make_target, needs_token
from onym.ai.gateway import permissions
from onym.ai.gateway.grants import Connection, GrantBroker, GrantServer, Subject, SubjectCredentials
from onym.ai.oauth import CodeFlow, Grant, Target
from onym.ai.records import Level
from onym.errors import (
    AccessError,
    AIIPError,
    AuthorizationError,
    ConnectionRequired,
    DeniedError,
    NetError,
    ProviderError,
    SignatureError,
)
from onym.net.messages import Work
from onym.server.gateway import dependencies, people
from onym.server.gateway.responses import format_time
from onym.server.gateway.sessions import HiddenStruct, build_step_up_path, make_sign_in_required
from onym.sign.dpop import DPoPKey, generate_dpop_key
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.accounts.oidc import ProviderTokens
    from onym.ai.records import Description, Resolution
    from onym.server.gateway.dependencies import Dependencies, RequestContext
    from onym.server.gateway.sessions import PersonSession, PersonSessions

_LOG: Final = logging.getLogger("onym.server.gateway")
#: seconds that a person may take at an authority's server
_CONNECT_SECONDS: Final = 600
#: tokens of a sign-in are refreshed this many seconds before their end
_TOKEN_MARGIN: Final = 30.0
_CONNECTION: Final = "connection"
_CONNECTING: Final = "connecting"
_CALLBACK: Final = "/connections/callback"
#: connections of one session
_MAX_CONNECTIONS: Final = 100
_CONNECTION_ID: Final = re.compile(r"[0-9a-f]{64}")

_Stored = TypeVar("_Stored", "_StoredConnection", "_StoredFlow")


class _StoredConnection(HiddenStruct, array_like=True):
    """A connection as the session keeps it, sealed with its cookie."""

    issuer: str
    authority: str
    resource: str
    token: str
    scopes: tuple[str, ...]
    expires: float
    dpop_key: str | None
    refresh_token: str | None
    since: float


class _StoredFlow(HiddenStruct, array_like=True):
    """A connection that a person is about to make."""

    issuer: str
    authority: str
    resource: str
    scopes: tuple[str, ...]
    dpop: Level
    state: str
    verifier: str
    dpop_key: str | None
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionView:
    """A connection on the page of connections. `id` ends it; times are text in UTC."""

    id: str
    issuer: str
    authority: str
    resource: str
    scopes: tuple[str, ...]
    since: str
    expires: str
    renewable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """Finds for whom a call is sent, and makes the connections of people. `broker` gets their tokens."""

    parts: Dependencies
    broker: GrantBroker
    consents: permissions.ConsentStore

    async def find_subject(self, visit: RequestContext, resolution: Resolution) -> Subject | None:
        """Return the person who signed in with this browser, with their tokens for this authority, or None.

        Raises StoreError if the store cannot be reached.
        """
        session = await people.find_session(self.parts, visit)
        sessions = self.parts.sessions
        if session is None or sessions is None:
            return None
        tokens = await self._get_tokens(visit, session, resolution)
        live = tokens.expires > self.parts.clock().timestamp()
        found = [
            await self._load_connection(session, _identify_connection(server, resolution))
            for issuer in resolution.document.authorization_servers
            if (server := self.broker.find_server(issuer)) is not None and server.connect
        ]
        return Subject(
            id=session.digest,
            provider=session.person.issuer,
            access_token=tokens.access if live else None,
            id_token=tokens.id_token,
            connections=tuple(_restore_connection(kept) for kept in found if kept is not None),
            save_connection=partial(self._make_save_step, session),
            check_live=partial(Work, _fail_without_loop, partial(sessions.is_live, session)),
        )

    async def _get_tokens(
        self, visit: RequestContext, session: PersonSession, resolution: Resolution
    ) -> ProviderTokens:
        """Return the tokens of the sign-in, refreshed if the authority's server needs one that is over.

        If the provider does not renew them, they stay as they are. Raises AIIPError `aiip.unavailable` if the
        provider cannot be reached.
        """
        tokens, at = self._sessions.open_tokens(session), self.parts.clock()
        provider, issuer = self.parts.providers.get(session.provider), session.person.issuer
        servers = map(self.broker.find_server, resolution.document.authorization_servers)
        if (
            provider is None
            or tokens.refresh is None
            or not any(
                server is not None and issuer in {server.issuer, *server.tokens_of, *server.assertions_of}
                for server in servers
            )
        ):
            return tokens
        if tokens.first_end > at.timestamp() + _TOKEN_MARGIN:
            return tokens
        try:
            return await self._sessions.refresh_tokens(
                session, lambda present: provider.refresh_tokens(session.person, present, at)
            )
        except AccessError as error:
            # for example after the person signed out at the provider
            _LOG.info("request %s: %s does not renew tokens: %s", visit.id, session.provider, error.message)
            return tokens
        except (NetError, ProviderError, SignatureError) as error:
            raise people.convert_provider_error(visit, provider, error) from error

    async def find_step(
        self,
        visit: RequestContext,
        resolution: Resolution,
        description: Description,
        *,
        reviewed: bool = False,
    ) -> permissions.Step:
        """Return what must happen next for a person's call of this resource."""
        session = await people.find_session(self.parts, visit)
        state = permissions.CallState(
            signed_in_at=None if session is None else _get_sign_in_time(session), reviewed=reviewed
        )
        needed = needs_token(resolution, description.scopes, description.effects)
        token = needed and not self._may_ask_as_service(resolution)
        step = permissions.find_next_step(description, state, at=self.parts.clock().timestamp(), token=token)
        if step is permissions.Step.APPROVE and description.approval and self.is_listed(resolution):
            # the endpoint itself demands the approval, and answers with a challenge until there is one
            return permissions.Step.FORWARD if reviewed else permissions.Step.REVIEW
        return step

    async def authorize(
        self, visit: RequestContext, resolution: Resolution, description: Description, step: permissions.Step
    ) -> SubjectCredentials:
        """Return the credentials for a person's call of this resource, after `find_step` returned `step`.

        Raises AIIPError for a step that must come first, with its code, and what `GrantBroker.choose_grant`
        raises.
        """
        self._note_caller(visit)
        _require_forward(step, description)
        return self._choose_credentials(
            visit, resolution, description, await self.find_subject(visit, resolution)
        )

    async def authorize_program(
        self,
        visit: RequestContext,
        resolution: Resolution,
        description: Description,
        *,
        approved: bool = False,
    ) -> SubjectCredentials:
        """Return the credentials for a call that comes without a form: from a program, or for nobody.

        `approved` tells that the call itself needs no approval. Raises AIIPError `aiip.sign-in-required` if
        it must come from a person, or from a program with a token of a person.
        """
        program, subject, signed_in_at = visit.program, None, None
        if program is not None and program.person is not None:
            subject = Subject(
                id=program.caller.token_hash or "",
                provider=program.issuer,
                access_token=program.token,
                is_program=True,
            )
            signed_in_at = program.caller.auth_time or 0.0
        self._note_caller(visit)
        state = permissions.CallState(signed_in_at=signed_in_at, is_program=True, approved=approved)
        step = permissions.find_next_step(description, state, at=self.parts.clock().timestamp())
        if step is permissions.Step.CONSENT and program is not None:
            await self._require_consent(program, resolution, description)
        else:
            _require_forward(step, description)
        return self._choose_credentials(visit, resolution, description, subject)

    async def _require_consent(
        self, program: dependencies.Program, resolution: Resolution, description: Description
    ) -> None:
        """Raise AIIPError unless the person has allowed the program to send such calls; note the question."""
        at, person = (
            self.parts.clock().timestamp(),
            permissions.name_person(program.issuer, program.person or ""),
        )
        scope = permissions.ConsentScope(
            client=program.client,
            authority=resolution.authority,
            effects=description.effects,
            bound=program.thumbprint is not None,
        )
        if await self.consents.find(person, scope, at=at) is not None:
            return
        question = permissions.ConsentQuestion(
            scope=scope,
            target=str(resolution.uri.without_query),
            scopes=description.scopes,
            proof=program.proof.value,
            thumbprint=program.thumbprint,
            created=at,
            until=at + permissions.QUESTION_SECONDS,
        )
        asked = await self.consents.ask(person, question)
        error = permissions.make_step_error(permissions.Step.CONSENT, question.target)
        if asked.denied:
            error.hint = "The person has denied it today, and can still change that on the page."
        error.page_url = f"{self.parts.settings.base_url}/consents/{scope.id}"
        raise error

    async def authorize_task(
        self, visit: RequestContext, resolution: Resolution, description: Description, *, by_form: bool
    ) -> SubjectCredentials:
        """Return the credentials for a request to a task of this resource.

        Forms act for the person who signed in (`by_form`), and so do the pages of this gateway that show the
        task. A link of another site acts for nobody, so it cannot make the gateway get tokens. Every other
        request is one of a program. The call that began the task was approved, if that was necessary. The
        endpoint decides whose task it is. Raises as `authorize_program`.
        """
        subject = None
        if visit.program is None and (by_form or _comes_from_here(visit)):
            personal = permissions.get_rule(description).signed_in or needs_token(
                resolution, description.scopes, description.effects
            )
            subject = await self.find_subject(visit, resolution) if personal else None
        if subject is None:
            return await self.authorize_program(visit, resolution, description, approved=True)
        self._note_caller(visit)
        return self._choose_credentials(visit, resolution, description, subject)

    async def find_obstacle(
        self, visit: RequestContext, resolution: Resolution, description: Description
    ) -> AIIPError | None:
        """Return the error that a call of this resource would cause before the form is sent, or None."""
        try:
            step = await self.find_step(visit, resolution, description, reviewed=True)
            await self.authorize(visit, resolution, description, step)
        except AIIPError as error:
            return error
        return None

    def build_way_out(self, error: AIIPError, target: str) -> tuple[str, str] | None:
        """Return path and name of the link that removes an obstacle and then opens `target`, or None."""
        if isinstance(error, ConnectionRequired):
            return (
                f"/connections/begin?{urlencode({'uri': error.target or ''})}",
                f"Connect to {error.issuer}",
            )
        if error.code == "aiip.sign-in-required" and self.parts.providers:
            return f"/auth/login?{urlencode({'next': target})}", "Sign in"
        if error.code == "aiip.step-up-required":
            return build_step_up_path(target, max_age=int(permissions.SIGN_IN_SECONDS)), "Sign in again"
        return None

    def _choose_credentials(
        self, visit: RequestContext, resolution: Resolution, description: Description, subject: Subject | None
    ) -> SubjectCredentials:
        """Choose a route, and put it into the audit record. Raises AIIPError if there is none."""
        scopes, effects = frozenset(description.scopes), description.effects
        grant = self.broker.choose_grant(resolution, subject, scopes=scopes, effects=effects)
        if grant is not None:
            visit.notes["route"] = str(grant.route)
        return SubjectCredentials(self.broker, subject, scopes, effects, grant)

    def _note_caller(self, visit: RequestContext) -> None:
        """Put the person and the program into the audit record."""
        person = None
        if visit.program is not None:
            visit.notes |= {"client": visit.program.client, "proof": visit.program.proof.value}
            person = (visit.program.issuer, visit.program.person) if visit.program.person else None
        elif visit.session is not None:
            person = (visit.session.person.issuer, visit.session.person.subject)
        if person is not None:
            visit.notes["person"] = dependencies.hash_person(self.parts.audit_key, *person)

    def is_listed(self, resolution: Resolution) -> bool:
        """Report whether the authority accepts approvals of this gateway."""
        issuer = self.parts.settings.base_url
        return any(approver.issuer == issuer for approver in resolution.document.approvers)

    def _may_ask_as_service(self, resolution: Resolution) -> bool:
        servers = (self.broker.find_server(issuer) for issuer in resolution.document.authorization_servers)
        return any(server is not None and server.service for server in servers)

    # --- connections: the authority's own sign-in, for one person and one session ---

    async def handle_connections(self, visit: RequestContext, method: str) -> Response:
        """Handle a request below `/connections`. Raises OnymError."""
        match method, visit.path.decode("latin-1"):
            case "GET", "/connections":
                return await self._show_connections(visit)
            case "GET", "/connections/callback":
                return await self._finish_connection(visit)
            case "POST", "/connections/end":
                return await self._end_connection(visit)
        raise AIIPError("this URL does not exist", code="aiip.endpoint-unknown")

    async def _show_connections(self, visit: RequestContext) -> Response:
        session = await people.require_session(self.parts, visit)
        views = [
            ConnectionView(
                id=_make_connection_id(kept.issuer, kept.authority, kept.resource),
                issuer=kept.issuer,
                authority=kept.authority,
                resource=kept.resource,
                scopes=kept.scopes,
                since=format_time(kept.since),
                expires=format_time(kept.expires),
                renewable=kept.refresh_token is not None,
            )
            for kept in await self._list_connections(session)
        ]
        csrf = visit.form_key.token
        return people.make_view_response(
            self.parts, visit, "connections.html", {"connections": views}, csrf=csrf
        )

    async def begin_connection(
        self, visit: RequestContext, resolution: Resolution, description: Description, target: str
    ) -> Response:
        """Lead the person to the server of this resource's authority, and then to `target`, a path.

        Sign-ins begin with a link, and so does this. Raises AIIPError.
        """
        if not _comes_from_here(visit):
            raise DeniedError(
                "a page of another site led here, and a connection begins on a page of this gateway",
                code="aiip.forged",
                clause="AIIP/HTTPS v1 3.15, attack 34",
                hint="Open the page of the resource, and follow its link.",
            )
        session = await people.require_session(self.parts, visit)
        await dependencies.require_rate(
            self.parts, "logins", f"connect:{visit.client}", "too many connections"
        )
        server = self.broker.choose_server(resolution, description.scopes)
        if not server.connect:
            raise AuthorizationError(
                "this gateway makes no connections to the server of the authority",
                target=description.uri,
                hint="Ask the operator of the gateway which sign-in this authority needs.",
            )
        if len(await self._list_connections(session)) >= _MAX_CONNECTIONS:
            raise AIIPError(
                f"you have {_MAX_CONNECTIONS} connections",
                code="aiip.too-many-requests",
                hint="End one that you do not need on the page /connections, then connect again.",
            )
        wanted = make_target(resolution, description.scopes, server.registration)
        key = None if wanted.dpop is Level.NONE else generate_dpop_key()
        client = replace(self.broker.make_client(server), dpop_key=key)
        begun = await self._run(
            client.begin_code_flow(wanted, redirect_uri=self.parts.settings.base_url + _CALLBACK)
        )
        stored = _StoredFlow(
            server.issuer,
            resolution.authority,
            wanted.resource or "",
            wanted.scopes,
            wanted.dpop,
            begun.state.reveal(),
            begun.verifier.reveal(),
            None if key is None else key.export_key().reveal(),
            sanitize_target(target),
        )
        until = self.parts.clock().timestamp() + _CONNECT_SECONDS
        # one at a time: the state of an older one does not match any more
        await self._sessions.put_data(session, _CONNECTING, msgspec.msgpack.encode(stored), until)
        return RedirectResponse(begun.url, 303)

    async def _finish_connection(self, visit: RequestContext) -> Response:
        """Redeem the code that the authority's server gave, and keep the tokens in the session."""
        session = await people.require_session(self.parts, visit)
        pending = await self._sessions.get_data(session, _CONNECTING)
        stored = None if pending is None else _decode_stored(pending, _StoredFlow)
        # a link of another site has another state, and must not end the connection that is being made
        given = dict(dependencies.parse_pairs(visit.query)).get("state", "").encode("utf-8", "replace")
        if stored is None or not hmac.compare_digest(stored.state.encode(), given):
            raise AIIPError(
                "this connection began in another session, or took too long",
                code="aiip.sign-in-failed",
                hint="Open the resource's page and connect again.",
            )
        await self._sessions.delete_data(session, _CONNECTING)
        server = self._find_server(stored.issuer)
        key = None if stored.dpop_key is None else DPoPKey.from_jwk(Secret(stored.dpop_key))
        client = replace(self.broker.make_client(server), dpop_key=key)
        target = Target(resource=stored.resource, scopes=stored.scopes, dpop=stored.dpop)
        begun = CodeFlow(
            url="",
            redirect_uri=self.parts.settings.base_url + _CALLBACK,
            target=target,
            state=Secret(stored.state),
            verifier=Secret(stored.verifier),
        )
        redirected = Secret(f"{begun.redirect_uri}?{visit.query.decode('latin-1')}")
        try:
            grant = await self._run(client.finish_code_flow(begun, redirected))
        except AIIPError as error:
            dependencies.record_event(
                self.parts, visit, "connect", session.person, decision="refuse", code=error.code
            )
            raise
        connection = Connection(
            issuer=stored.issuer, authority=stored.authority, resource=stored.resource, grant=grant
        )
        await self._save_connection(session, connection)
        dependencies.record_event(
            self.parts,
            visit,
            "connect",
            session.person,
            decision="permit",
            issuer=stored.issuer,
            authority=stored.authority,
        )
        return RedirectResponse(stored.next, 303)

    async def _end_connection(self, visit: RequestContext) -> Response:
        """Revoke a connection at the authority's server, and forget it."""
        session = await people.require_session(self.parts, visit)
        form = await dependencies.read_form(self.parts, visit)
        identifier = form.get("connection", "")
        if not _CONNECTION_ID.fullmatch(identifier):
            raise AIIPError("the form names no connection", code="aiip.bad-request")
        kept = await self._load_connection(session, identifier)
        revoked = False
        if kept is not None:
            await self._sessions.delete_data(session, f"{_CONNECTION}/{identifier}")
            dependencies.record_event(
                self.parts,
                visit,
                "connect",
                session.person,
                decision="end",
                issuer=kept.issuer,
                authority=kept.authority,
            )
            revoked = await self._revoke(kept)
        if visit.wants_page:
            return RedirectResponse("/connections", 303)
        return Response(
            msgspec.json.encode({"ended": True, "revoked": revoked}), media_type="application/json"
        )

    @property
    def _sessions(self) -> PersonSessions:
        sessions = self.parts.sessions
        if sessions is None:
            raise make_sign_in_required()
        return sessions

    def _find_server(self, issuer: str) -> GrantServer:
        server = self.broker.find_server(issuer)
        if server is None or not server.connect:
            raise AuthorizationError(
                "this gateway makes no connections to this server",
                hint="The operator can add it to [[authorization_servers]].",
            )
        return server

    async def _revoke(self, kept: _StoredConnection) -> bool:
        """Revoke the tokens of a connection at its server. Report whether the server did."""
        server = self.broker.find_server(kept.issuer)
        if server is None:
            return False
        token, hint = kept.token, "access_token"
        if kept.refresh_token is not None:
            token, hint = kept.refresh_token, "refresh_token"
        client = self.broker.make_client(server)
        try:
            return bool(await self._run(client.revoke(Secret(token), hint=hint)))
        except (AuthorizationError, NetError):
            return False  # the gateway has forgotten it all the same

    async def _run(self, flow: Any) -> Any:
        return await self.parts.upstream.run(flow)

    async def _load_connection(self, session: PersonSession, identifier: str) -> _StoredConnection | None:
        data = await self._sessions.get_data(session, f"{_CONNECTION}/{identifier}")
        return None if data is None else _decode_stored(data, _StoredConnection)

    async def _list_connections(self, session: PersonSession) -> list[_StoredConnection]:
        """Return the connections of a session, by authority."""
        rows = await self._sessions.find_data(session, _CONNECTION)
        found = [_decode_stored(data, _StoredConnection) for data in rows]
        kept = [connection for connection in found if connection is not None]
        return sorted(kept, key=lambda connection: (connection.authority, connection.issuer))

    async def _save_connection(self, session: PersonSession, connection: Connection) -> None:
        grant = connection.grant
        stored = _StoredConnection(
            connection.issuer,
            connection.authority,
            connection.resource,
            grant.token.reveal(),
            tuple(sorted(grant.scopes)),
            grant.expires,
            None if grant.dpop_key is None else grant.dpop_key.export_key().reveal(),
            None if grant.refresh_token is None else grant.refresh_token.reveal(),
            self.parts.clock().timestamp(),
        )
        until = None if grant.refresh_token is not None else grant.expires
        name = _make_connection_id(connection.issuer, connection.authority, connection.resource)
        await self._sessions.put_data(session, f"{_CONNECTION}/{name}", msgspec.msgpack.encode(stored), until)

    def _make_save_step(self, session: PersonSession, connection: Connection) -> Work:
        return Work(_fail_without_loop, partial(self._save_connection, session, connection))


def make_review_token(visit: RequestContext, parts: Sequence[str | bytes]) -> str:
    """Return the proof that this browser was shown exactly this call: a MAC under its secret."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode() if isinstance(part, str) else part).digest())
    secret = visit.form_key.get_secret().reveal().encode()
    return hmac.new(secret, b"onym review " + digest.digest(), hashlib.sha256).hexdigest()


def _require_forward(step: permissions.Step, description: Description) -> None:
    """Raise AIIPError unless the call can be forwarded now."""
    if step is not permissions.Step.FORWARD:
        raise permissions.make_step_error(step, description.uri)


def _comes_from_here(visit: RequestContext) -> bool:
    """Report whether a person opened this URL, or followed a link of this gateway (Fetch Metadata)."""
    return visit.method == "GET" and visit.get_field("sec-fetch-site") in {None, "none", "same-origin"}


def _get_sign_in_time(session: PersonSession) -> float:
    """Return when the person authenticated; 0.0 if the provider does not tell, so that this is not recent.

    The session may be new all the same: a provider signs people in again without asking them.
    """
    return session.person.auth_time or 0.0


def _identify_connection(server: GrantServer, resolution: Resolution) -> str:
    """Return the ID of the connection to a server for this authority and its resource."""
    resource = make_target(resolution, (), server.registration).resource
    return _make_connection_id(server.issuer, resolution.authority, resource or "")


def _make_connection_id(issuer: str, authority: str, resource: str) -> str:
    # none of them contains a space
    return hashlib.sha256(f"{issuer} {authority} {resource}".encode()).hexdigest()


def _decode_stored(data: bytes, kind: type[_Stored]) -> _Stored | None:
    """Return what a session keeps, or None for data of a version that kept less of it."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.ValidationError:
        return None


def _restore_connection(kept: _StoredConnection) -> Connection:
    return Connection(
        issuer=kept.issuer, authority=kept.authority, resource=kept.resource, grant=_restore_grant(kept)
    )


def _restore_grant(kept: _StoredConnection) -> Grant:
    return Grant(
        token=Secret(kept.token),
        scopes=frozenset(kept.scopes),
        expires=kept.expires,
        dpop_key=None if kept.dpop_key is None else DPoPKey.from_jwk(Secret(kept.dpop_key)),
        refresh_token=None if kept.refresh_token is None else Secret(kept.refresh_token),
    )


def _fail_without_loop() -> None:
    raise AssertionError("a gateway runs in an event loop")  # pragma: no cover
