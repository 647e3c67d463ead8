"""OAuth 2 at the client: requests for tokens, and the checks of what comes back."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from onym.ai import oauth_metadata
from onym.ai.discovery.well_known import fetch_url
from onym.ai.exchange import DPoPNonces
from onym.ai.records import Level
from onym.ai.settings import ResolverSettings
from onym.common.text import parse_json_object
from onym.errors import (
    AuthorizationError,
    DeadlineExceeded,
    DiscoveryError,
    NetError,
    SignatureError,
    strip_frames,
)
from onym.net import oauth
from onym.net.connections import hash_client_certificate
from onym.net.messages import Flow, HTTPRequest, Origin, Reply, Send, Wait, Work
from onym.sign.dpop import DPoPKey, sign_dpop_proof
from onym.sign.jws import IDJAG, find_token_fault, read_id_jag, verify_id_jag
from onym.sign.keys import MAX_KEY_SET, KeySet, read_keys
from onym.uri.secret import MARK, Secret

#: the life of a token whose response does not tell it, and the longest life that is believed, in seconds
DEFAULT_SECONDS: Final = 300.0
LONGEST_SECONDS: Final = 24 * 3600.0
_LONGEST_TEXT: Final = 200

_OAUTH_TEXT: Final = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]{1,200}\Z")
_LONG_WORD: Final = re.compile(r"[A-Za-z0-9._~+/=-]{24,}")

JWT_BEARER_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
EXCHANGE_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
BACKCHANNEL_GRANT: Final = "urn:openid:params:grant-type:ciba"
ACCESS_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a URN
ID_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - a URN
ID_JAG_TYPE: Final = "urn:ietf:params:oauth:token-type:id-jag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a token is for.

    `resource` is the resource's identifier (RFC 8707), `scopes` are all scopes that are asked for. `dpop` is
    the resource's requirement: if it is "required", a Bearer token is refused. With `mtls`, the token must be
    bound to the client's TLS certificate. `details` are `authorization_details` (RFC 9396).
    """

    resource: str | None
    scopes: tuple[str, ...] = ()
    dpop: Level = Level.NONE
    mtls: bool = False
    details: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A checked token response. `expires` is in seconds since the epoch.

    `dpop_key` is the key that the token is bound to, None for a token that needs no proof.
    """

    token: Secret
    scopes: frozenset[str]
    expires: float
    dpop_key: DPoPKey | None = None
    refresh_token: Secret | None = None
    id_token: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFlow:
    """A sign-in in a browser that has begun: open `url`, then pass the redirect to `finish_code_flow`."""

    url: str = field(repr=False)
    redirect_uri: str
    target: Target
    state: Secret
    verifier: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFlow:
    """A sign-in on another device that has begun (RFC 8628 3.2): a person enters `user_code` at
    `verification_uri` before `expires` (seconds since the epoch)."""

    device_code: Secret
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None
    expires: float
    interval: float
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class BackchannelFlow:
    """A sign-in that has begun on a person's own device (CIBA Core 7.3); it ends at `expires` (seconds)."""

    auth_req_id: Secret
    expires: float
    interval: float
    target: Target


#: seconds between two questions for the result of a device sign-in: default, least and most (RFC 8628 3.5)
_INTERVAL: Final = 5.0
_LONGEST_INTERVAL: Final = 60.0
_LONGEST_DEVICE: Final = 3600.0
_SLOWER: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """The requests that a client sends to an authorization server, as flows.

    With `dpop_key`, every request for a token has a proof (RFC 9449 5), and the token is bound to the key.
    All flows raise AuthorizationError, with one of these codes:

    - `aiip.authorization-unavailable`: the server is unknown, cannot be reached (`retryable`), or refused;
    - `aiip.authorization-invalid`: it granted a wider scope, another resource or another key;
    - `aiip.downgrade-detected`: it issued a Bearer token where the resource requires DPoP;
    - `aiip.authentication-required`: a refresh token or a grant is no longer valid, so sign in again;
    - `aiip.insufficient-scope`, `aiip.step-up-required`: the person must consent or sign in again.

        client = OAuthClient(registration=Registration(issuer="https://login.bank.example", client_id="shop"))
        target = Target(resource="https://bank.example")
        grant = run_flow(client.request_client_credentials(target), transport)

    Generators for `run_flow` and `arun_flow`; no I/O. Tokens are `Secret`. A response that grants more than
    was asked for, or something else, is an error, and its token is not used. The grants are those of RFC
    6749, 7523, 8628, 8693 and draft-ietf-oauth-identity-assertion-authz-grant (ID-JAG), with PKCE (RFC 7636),
    PAR (RFC 9126), resource indicators (RFC 8707), DPoP (RFC 9449) and mutual TLS (RFC 8705).
    """

    registration: oauth_metadata.Registration
    settings: ResolverSettings = field(default_factory=ResolverSettings)
    dpop_key: DPoPKey | None = None
    nonces: DPoPNonces = field(default_factory=DPoPNonces, repr=False)

    def fetch_server(self) -> Flow[oauth_metadata.ServerMetadata]:
        """Fetch the server's metadata, from the cache if possible."""
        return oauth_metadata.fetch_server_metadata(self.registration, self.settings)

    def request_client_credentials(self, target: Target) -> Flow[Grant]:
        """Request a token for the client itself (RFC 6749 4.4)."""
        return self._request_grant({"grant_type": "client_credentials"}, target)

    def refresh(self, refresh_token: Secret, target: Target) -> Flow[Grant]:
        """Request a new token with a refresh token (RFC 6749 6), which may come with a new refresh token."""
        return self._request_grant({"grant_type": "refresh_token", "refresh_token": refresh_token}, target)

    def exchange_token(
        self,
        subject_token: Secret,
        target: Target,
        *,
        subject_type: str = ACCESS_TOKEN_TYPE,
        actor_token: Secret | None = None,
        actor_type: str = ACCESS_TOKEN_TYPE,
    ) -> Flow[Grant]:
        """Exchange a person's token for one that is for `target` (RFC 8693).

        The token must name an actor in `act`, unless the registration has `impersonation`.
        """
        form: dict[str, str | Secret] = {
            "grant_type": EXCHANGE_GRANT,
            "subject_token": subject_token,
            "subject_token_type": subject_type,
            "requested_token_type": ACCESS_TOKEN_TYPE,
        }
        if actor_token is not None:
            form |= {"actor_token": actor_token, "actor_token_type": actor_type}
        return self._request_grant(form, target, actor=not self.registration.impersonation)

    def request_id_jag(
        self,
        subject_token: Secret,
        target: Target,
        *,
        audience: str,
        client_id: str,
        subject_type: str = ID_TOKEN_TYPE,
    ) -> Flow[Secret]:
        """Request an identity assertion grant from the person's OpenID provider, this client's server.

        `audience` is the authorization server that will redeem it, and `client_id` the client's ID there. The
        grant is verified with the provider's keys, if it publishes any. Redeem it once, with `redeem_id_jag`.
        """
        server = yield from self.fetch_server()
        form: dict[str, str | Secret] = {
            "grant_type": EXCHANGE_GRANT,
            "requested_token_type": ID_JAG_TYPE,
            "audience": audience,
            "subject_token": subject_token,
            "subject_token_type": subject_type,
        }
        issued = yield from self._request_token(server, form, target)
        if issued.issued_type != ID_JAG_TYPE:
            raise self._make_invalid(
                "did not issue an ID-JAG", "draft-ietf-oauth-identity-assertion-authz-grant 4.3"
            )
        grant = yield from self._verify_id_jag(server, issued.token, audience, client_id)
        self._check_scopes(grant.scopes, target)
        bound_to = None if self.dpop_key is None else self.dpop_key.thumbprint
        if grant.resource not in {None, target.resource} or grant.thumbprint not in {None, bound_to}:
            raise self._make_invalid("issued an ID-JAG for another resource or key", "RFC 8707 2")
        return issued.token

    def redeem_id_jag(self, assertion: Secret, target: Target) -> Flow[Grant]:
        """Request a token with an identity assertion grant (RFC 7523 2.1)."""
        return self._request_grant({"grant_type": JWT_BEARER_GRANT, "assertion": assertion}, target)

    def begin_code_flow(
        self, target: Target, *, redirect_uri: str, parameters: Mapping[str, str] | None = None
    ) -> Flow[CodeFlow]:
        """Begin the authorization code flow (RFC 6749 4.1) with PKCE S256 and, if offered, PAR (RFC 9126).

        `parameters` are further parameters of the authorization request, such as `acr_values`, `max_age`,
        `login_hint` and `prompt`.
        """
        server = yield from self.fetch_server()
        endpoint = server.authorization_endpoint
        if endpoint is None:
            raise self._make_refusal("has no authorization endpoint", "RFC 8414 2")
        if server.challenge_methods and "S256" not in server.challenge_methods:
            raise self._make_refusal("does not support PKCE with S256", "RFC 7636 4.2")
        state, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        form: dict[str, str | Secret] = {
            **(parameters or {}),
            "client_id": self.registration.client_id,
            "response_type": "code",
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": oauth.make_code_challenge(verifier),
            "code_challenge_method": "S256",
            **_format_target(target),
        }
        if self.dpop_key is not None:
            form["dpop_jkt"] = self.dpop_key.thumbprint
        query: dict[str, str | Secret] = {"client_id": self.registration.client_id}
        if server.pushed_authorization_request_endpoint is not None:
            pushed = yield from self._post(server, "pushed_authorization_request_endpoint", form)
            members = self._read_success(pushed, {200, 201}, "pushed authorization response")
            if not isinstance(members.get("request_uri"), str):
                raise self._make_invalid("returned no request_uri", "RFC 9126 2.2")
            query["request_uri"] = members["request_uri"]
        elif server.requires_pushed_requests:
            raise self._make_refusal(
                "requires pushed authorization requests without an endpoint", "RFC 9126 5"
            )
        else:
            query |= form
        return CodeFlow(
            url=oauth.append_query(endpoint, query),
            redirect_uri=redirect_uri,
            target=target,
            state=Secret(state),
            verifier=Secret(verifier),
        )

    def finish_code_flow(self, begun: CodeFlow, redirected: Secret) -> Flow[Grant]:
        """Redeem the code in the URL to which the server redirected the browser.

        The URL must be the redirect URI with this flow's state and, if the server announced it, its issuer
        (RFC 9207).
        """
        server = yield from self.fetch_server()
        fault, code = _read_redirect(redirected, begun, server)
        if code is None:
            raise self._make_refusal(fault or "sent no code", "RFC 6749 4.1.2, RFC 9207 2.4")
        form: dict[str, str | Secret] = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": begun.redirect_uri,
            "code_verifier": begun.verifier,
        }
        return (yield from self._request_grant(form, begun.target))

    def begin_device_flow(self, target: Target) -> Flow[DeviceFlow]:
        """Begin a sign-in on another device (RFC 8628 3.1)."""
        server = yield from self.fetch_server()
        if server.device_authorization_endpoint is None:
            raise self._make_refusal("does not offer sign-in on another device", "RFC 8628 4")
        reply = yield from self._post(server, "device_authorization_endpoint", _format_target(target))
        members = self._read_success(reply, {200}, "device authorization response")
        texts = [members.get(name) for name in ("device_code", "user_code", "verification_uri")]
        code, user_code, uri = (
            text if isinstance(text, str) and _OAUTH_TEXT.match(text) else "" for text in texts
        )
        complete = members.get("verification_uri_complete")
        urls = [uri, *([complete] if complete is not None else [])]
        if not code or not user_code or not all(oauth_metadata.is_web_url(url) for url in urls):
            members.clear()
            raise self._make_invalid("returned an unusable device authorization", "RFC 8628 3.2")
        seconds = oauth.parse_seconds(members.get("expires_in")) or _LONGEST_DEVICE
        return DeviceFlow(
            device_code=Secret(code),
            user_code=user_code,
            verification_uri=uri,
            verification_uri_complete=complete,
            expires=self.settings.clock() + min(seconds, _LONGEST_DEVICE),
            interval=min(oauth.parse_seconds(members.get("interval")) or _INTERVAL, _LONGEST_INTERVAL),
            target=target,
        )

    def finish_device_flow(self, begun: DeviceFlow) -> Flow[Grant]:
        """Wait until the person has decided, and return the token (RFC 8628 3.4)."""
        form: dict[str, str | Secret] = {"grant_type": DEVICE_GRANT, "device_code": begun.device_code}
        return (yield from self._poll(form, begun, "RFC 8628 3.5"))

    def begin_backchannel_flow(
        self, target: Target, *, login_hint: str, binding_message: str
    ) -> Flow[BackchannelFlow]:
        """Ask a person to sign in on their own device (OpenID CIBA Core 7.1), to be polled for the result.

        `login_hint` names the person at the server. The device shows `binding_message`, to be compared with
        what this program shows. The token proves that the person signed in, and nothing else.
        """
        server = yield from self.fetch_server()
        if server.backchannel_authentication_endpoint is None:
            raise self._make_refusal("does not offer sign-in on a person's own device", "CIBA Core 4")
        target = replace(target, scopes=tuple(dict.fromkeys(["openid", *target.scopes])))
        form = {
            **_format_target(target),
            "login_hint": login_hint,
            "binding_message": binding_message,
        }
        reply = yield from self._post(server, "backchannel_authentication_endpoint", form, proof=False)
        members = self._read_success(reply, {200}, "backchannel authentication response")
        code = members.get("auth_req_id")
        if not isinstance(code, str) or not _OAUTH_TEXT.match(code):
            members.clear()
            raise self._make_invalid("returned an unusable backchannel authentication", "CIBA Core 7.3")
        seconds = oauth.parse_seconds(members.get("expires_in")) or _LONGEST_DEVICE
        return BackchannelFlow(
            auth_req_id=Secret(code),
            expires=self.settings.clock() + min(seconds, _LONGEST_DEVICE),
            interval=min(oauth.parse_seconds(members.get("interval")) or _INTERVAL, _LONGEST_INTERVAL),
            target=target,
        )

    def finish_backchannel_flow(self, begun: BackchannelFlow) -> Flow[Grant]:
        """Wait until the person has signed in or refused, and return the token (CIBA Core 10.1)."""
        form: dict[str, str | Secret] = {"grant_type": BACKCHANNEL_GRANT, "auth_req_id": begun.auth_req_id}
        return (yield from self._poll(form, begun, "CIBA Core 11"))

    def _poll(
        self, form: Mapping[str, str | Secret], begun: DeviceFlow | BackchannelFlow, clause: str
    ) -> Flow[Grant]:
        """Request the token until there is a decision, at the pace that the server wants."""
        interval = begun.interval
        while self.settings.clock() < begun.expires:
            yield Wait(interval)
            try:
                return (yield from self._request_grant(form, begun.target))
            except AuthorizationError as error:
                if error.oauth_error not in {"authorization_pending", "slow_down"} and not error.retryable:
                    raise
                if error.oauth_error != "authorization_pending":
                    interval = min(interval + _SLOWER, _LONGEST_INTERVAL)
        raise self._make_refusal("got no decision in time", clause, hint="Sign in again.")

    def revoke(self, token: Secret, *, hint: str = "refresh_token") -> Flow[bool]:
        """Revoke a token (RFC 7009). Report whether the server has an endpoint for that."""
        server = yield from self.fetch_server()
        if server.revocation_endpoint is None:
            return False
        form: dict[str, str | Secret] = {"token": token, "token_type_hint": hint}
        reply = yield from self._post(server, "revocation_endpoint", form, proof=False)
        if reply.status != 200:
            raise self._make_error(reply)
        return True

    def _request_grant(
        self, form: Mapping[str, str | Secret], target: Target, *, actor: bool = False
    ) -> Flow[Grant]:
        server = yield from self.fetch_server()
        issued = yield from self._request_token(server, form, target)
        kind = issued.kind.lower()
        bound = kind == "dpop" and self.dpop_key is not None
        if not bound and kind != "bearer":
            raise self._make_invalid("issued a token of another type", "RFC 6749 7.1")
        if not bound and target.dpop is Level.REQUIRED:
            raise self._make_error_with(
                "issued a Bearer token, but the resource requires DPoP",
                "aiip.downgrade-detected",
                "RFC 9449 5",
            )
        self._check_scopes(issued.scopes or frozenset(), target)
        identity = self.registration.identity if target.mtls else None
        certificate = None if identity is None else (yield Work(lambda: hash_client_certificate(identity)))
        fault = find_token_fault(
            issued.token,
            issuer=self.registration.issuer,
            client_id=self.registration.client_id,
            resource=target.resource,
            scopes=target.scopes,
            thumbprint=self.dpop_key.thumbprint if bound and self.dpop_key is not None else None,
            certificate=certificate,
            actor=actor,
        )
        if fault is not None:
            raise self._make_invalid(fault, "AIIP/HTTPS v1 3.10")
        seconds = DEFAULT_SECONDS if issued.seconds is None else min(issued.seconds, LONGEST_SECONDS)
        return Grant(
            token=issued.token,
            scopes=frozenset(target.scopes) if issued.scopes is None else issued.scopes,
            expires=self.settings.clock() + seconds,
            dpop_key=self.dpop_key if bound else None,
            refresh_token=issued.refresh_token,
            id_token=issued.id_token,
        )

    def _request_token(
        self, server: oauth_metadata.ServerMetadata, form: Mapping[str, str | Secret], target: Target
    ) -> Flow[oauth.IssuedToken]:
        reply = yield from self._post(server, "token_endpoint", {**form, **_format_target(target)})
        if reply.status != 200:
            raise self._make_error(reply)
        issued = oauth.read_token(reply)
        if isinstance(issued, str):
            raise self._make_invalid(issued, "RFC 6749 5.1")
        return issued

    def _verify_id_jag(
        self, server: oauth_metadata.ServerMetadata, token: Secret, audience: str, client_id: str
    ) -> Flow[IDJAG]:
        keys = yield from self._fetch_keys(server)
        check = read_id_jag if keys is None else partial(verify_id_jag, keys=keys)
        try:
            return check(
                token.reveal(),
                issuer=self.registration.issuer,
                audience=audience,
                client_id=client_id,
                at=self.settings.clock(),
            )
        except SignatureError as error:
            clause = "draft-ietf-oauth-identity-assertion-authz-grant 4.4.1"
            raise self._make_invalid(f"issued an invalid ID-JAG: {error.message}", clause) from strip_frames(
                error
            )

    def _fetch_keys(self, server: oauth_metadata.ServerMetadata) -> Flow[KeySet | None]:
        """Return the server's keys, None if it publishes none: its keys for grants may be known elsewhere."""
        if server.jwks_uri is None:
            return None
        try:
            reply = yield from fetch_url(
                server.jwks_uri, self.settings, accept="application/json", limit=MAX_KEY_SET
            )
            if reply.status in {404, 410}:
                return None
            if reply.status != 200:
                raise oauth_metadata.make_unavailable_error(
                    f"the keys of {self.registration.issuer} cannot be fetched: status {reply.status}",
                    clause="RFC 7517 5",
                    status=503,
                    retryable=True,
                )
            return read_keys(reply.body)
        except DiscoveryError as error:
            raise oauth_metadata.make_unreachable_error(error, "RFC 7517 5") from error
        except SignatureError as error:
            raise self._make_refusal(f"has unusable keys: {error.message}", "RFC 7517 5") from error

    def _post(
        self,
        server: oauth_metadata.ServerMetadata,
        member: str,
        form: Mapping[str, str | Secret],
        *,
        proof: bool = True,
    ) -> Flow[Reply]:
        """Post a form with the client's authentication; once more if the server asks for a DPoP nonce."""
        row = self.registration
        url = server.get_url(member, mtls=row.identity is not None) or ""
        origin, path = oauth_metadata.parse_url(url)
        reply: Reply
        for again in (False, True):
            headers, body = oauth_metadata.authenticate_client(row, form, self.settings.clock())
            if proof and self.dpop_key is not None:
                headers.append(("DPoP", self._sign_proof(self.dpop_key, url, origin)))
            request = HTTPRequest(
                method="POST",
                origin=origin,
                target=path,
                headers=tuple(headers),
                body=body,
                credential=f"{row.issuer} {row.client_id}",
            )
            send = Send(
                request, self.settings.timeout, limit=oauth_metadata.MAX_DOCUMENT, identity=row.identity
            )
            try:
                reply = yield send
            except NetError as error:
                raise oauth_metadata.make_unavailable_error(
                    f"the authorization server {row.issuer} cannot be reached: {error.message}",
                    clause="RFC 6749 3.2",
                    status=503,
                    # a token that was issued and lost does no harm
                    retryable=error.retryable or isinstance(error, DeadlineExceeded),
                ) from error
            renewed = self.nonces.update(origin, reply.headers)
            if again or not renewed or _read_error(reply)[0] != "use_dpop_nonce":
                break
        return reply

    def _sign_proof(self, key: DPoPKey, url: str, origin: Origin) -> Secret:
        nonce = self.nonces.get(origin)
        return Secret(sign_dpop_proof(key, method="POST", url=url, at=self.settings.clock(), nonce=nonce))

    def _check_scopes(self, granted: frozenset[str], target: Target) -> None:
        """Raise if the server granted a scope that was not asked for. Without scopes, it chooses them."""
        if target.scopes and not granted <= set(target.scopes):
            raise self._make_invalid("granted a wider scope than was asked for", "RFC 6749 3.3")

    def _read_success(self, reply: Reply, statuses: Collection[int], name: str) -> dict[str, Any]:
        if reply.status not in statuses:
            raise self._make_error(reply)
        try:
            return parse_json_object(reply.body)
        except ValueError as error:
            raise self._make_invalid(f"sent a {name} that {error}", "RFC 6749 5.1") from None

    def _make_error(self, reply: Reply) -> AuthorizationError:
        """Return the error of a refused request, with the server's code and its masked description."""
        code, more, prose = _read_error(reply)
        if self.registration.secret is not None:
            prose = prose.replace(self.registration.secret.reveal(), MARK)
        status = 503 if reply.status >= 500 or reply.status == 429 else None
        row = _ERRORS.get(code or "", _OTHER_ERROR)
        told = f"answered with {code}{prose}" if code else f"answered with status {reply.status}"
        error = AuthorizationError(
            f"the authorization server {self.registration.issuer} {told}",
            code=row.code,
            clause="RFC 6749 5.2",
            status=status or row.status,
            retryable=status is not None or row.status == 503,
            hint=row.hint.format(more=more) if row.hint else None,
        )
        error.oauth_error = code
        return error

    def _make_error_with(
        self, what: str, code: str, clause: str, hint: str | None = None
    ) -> AuthorizationError:
        return AuthorizationError(
            f"the authorization server {self.registration.issuer} {what}",
            code=code,
            clause=clause,
            status=502,
            hint=hint,
        )

    def _make_invalid(self, what: str, clause: str) -> AuthorizationError:
        hint = "The token was not used. The operator of the authorization server must correct this."
        return self._make_error_with(what, "aiip.authorization-invalid", clause, hint)

    def _make_refusal(self, what: str, clause: str, hint: str | None = None) -> AuthorizationError:
        message = f"the authorization server {self.registration.issuer} {what}"
        return oauth_metadata.make_unavailable_error(message, clause=clause, status=403, hint=hint)


class _ErrorRow(NamedTuple):
    """What an error of an authorization server means here."""

    code: str
    status: int = 403
    hint: str | None = None


_SIGN_IN: Final = "Sign in again: onym ai login."
_OTHER_ERROR: Final = _ErrorRow("aiip.authorization-unavailable")
#: RFC 6749 4.1.2.1 and 5.2, RFC 8693 2.2.2, RFC 8707 2, RFC 9449 5, RFC 9470 3
_ERRORS: Final[Mapping[str, _ErrorRow]] = {
    "access_denied": _ErrorRow("aiip.authorization-unavailable", 403, "The person or the server said no."),
    "expired_token": _ErrorRow("aiip.authentication-required", 401, _SIGN_IN),
    "insufficient_user_authentication": _ErrorRow("aiip.step-up-required", 403, "Sign in again{more}."),
    "interaction_required": _ErrorRow("aiip.step-up-required", 403, _SIGN_IN),
    "invalid_client": _ErrorRow(
        "aiip.authorization-unavailable", 403, "Check the client ID and how the client authenticates."
    ),
    "invalid_grant": _ErrorRow("aiip.authentication-required", 401, _SIGN_IN),
    "invalid_scope": _ErrorRow("aiip.insufficient-scope", 403, "Ask the server's operator for the scopes."),
    "invalid_target": _ErrorRow(
        "aiip.authorization-unavailable", 403, "The server issues no tokens for this resource."
    ),
    "login_required": _ErrorRow("aiip.step-up-required", 403, _SIGN_IN),
    "temporarily_unavailable": _ErrorRow("aiip.authorization-unavailable", 503),
}


def _read_error(reply: Reply) -> tuple[str | None, str, str]:
    """Return the code of an error response (RFC 6749 5.2), what a step-up needs, and the description."""
    if reply.status < 400 or len(reply.body) > oauth_metadata.MAX_DOCUMENT:
        return None, "", ""
    try:
        members = parse_json_object(reply.body)
    except ValueError:
        return None, "", ""
    wanted = {"acr_values": str, "max_age": int}
    more = [f"{name} {members[name]}" for name, kind in wanted.items() if type(members.get(name)) is kind]
    safe = [text for text in more if len(text) <= _LONGEST_TEXT and text.isascii() and text.isprintable()]
    prose = members.get("error_description")
    # a server may quote a token or a code, which are long
    told = f": {_LONG_WORD.sub(MARK, prose)}" if isinstance(prose, str) and _OAUTH_TEXT.match(prose) else ""
    return oauth.parse_error_code(members.get("error")), "".join(f" ({text})" for text in safe), told


def _format_target(target: Target) -> dict[str, str | Secret]:
    form: dict[str, str | Secret] = {}
    if target.scopes:
        form["scope"] = " ".join(target.scopes)
    if target.resource is not None:
        form["resource"] = target.resource
    if target.details:
        form["authorization_details"] = json.dumps([dict(detail) for detail in target.details])
    return form


def _read_redirect(
    redirected: Secret, begun: CodeFlow, server: oauth_metadata.ServerMetadata
) -> tuple[str | None, Secret | None]:
    """Return the fault of a redirect, or its code."""
    place, _, query = redirected.reveal().partition("?")
    try:
        pairs = parse_qsl(query.partition("#")[0], keep_blank_values=True, max_num_fields=32)
    except ValueError:
        return "redirected with more than 32 parameters", None
    found = {name: Secret(value) for name, value in pairs}
    if place != begun.redirect_uri or len(found) < len(pairs):
        return "redirected to another URL, or repeated a parameter", None
    if found.get("state") != begun.state:
        return "sent a response to another sign-in (state)", None
    issuer = found.get("iss")
    if (issuer is None and server.names_issuer) or issuer not in {None, Secret(server.issuer)}:
        return "did not send this response: it names another issuer", None
    if "error" in found:
        code = oauth.parse_error_code(found["error"].reveal())
        return f"answered with {code or 'an error'}", None
    return None, found.get("code")
