"""OpenID Connect: the client of a provider (Core 3.1, code flow with PKCE; RFC 9126; logout profiles).

The client checks the issuer, and the signature and claims of the ID token, before it returns a person. It
authenticates with a client secret if the settings have one, else with `private_key_jwt` if the application
has a key and the provider supports that, else not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from onym.accounts.records import MAX_EMAIL, MAX_NAME, Issuer
from onym.common.text import decode_base64url, parse_json_object
from onym.errors import AccessError, MalformedResponseError, NetError, SignatureError, URIError
from onym.net import oauth
from onym.net.config import NetConfig
from onym.net.limits import NetLimits, TLSConfig
from onym.net.messages import HTTPRequest, Origin, Reply, Send, split_url
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport
from onym.uri.generic import URI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.sign.jws import IDToken, LogoutToken
    from onym.sign.keys import KeySet, Signer

_TIMEOUT: Final = 10.0
_LIMITS: Final = NetLimits(body=512 * 1024, error_body=16 * 1024, connect=5.0)
_Headers: TypeAlias = tuple[tuple[str, str | Secret], ...]


#: seconds until metadata and keys are fetched again
_METADATA_SECONDS: Final = 3600.0
#: seconds for which a failure to fetch them is repeated, so that requests do not wait one after the other
_FAILURE_SECONDS: Final = 5.0
_SERVER_ERROR: Final = 500
#: seconds between two requests for new keys, whatever key tokens name
_RELOAD: Final = 60.0
_LONGEST_URL: Final = 2000
#: seconds of an access token whose response has no `expires_in`, and the most that is believed
_USUAL_LIFE: Final = 300
_LONGEST_LIFE: Final = 366 * 24 * 3600
#: the shortest `max_age` that is checked: clocks differ, and the way back from the provider takes time
_SHORTEST_AGE: Final = 60
#: seconds that the provider's clock may be ahead
_CLOCK_TOLERANCE: Final = 60
_Token = TypeVar("_Token")


#: groups of one person that are read, and characters of a group's name
_MOST_GROUPS: Final = 2000
_LONGEST_GROUP: Final = 256


#: the shortfall of a provider that does not tell what `max_age` asks for, and what to do about it
NO_SIGN_IN_TIME: Final = "the provider did not tell when you signed in (auth_time)"
_NO_SIGN_IN_TIME_HINT: Final = (
    "Signing in again does not help. Ask the operator to set max_age for this provider. A provider that still"
    " leaves auth_time out must be told to send it to this client (require_auth_time)."
)


class FlowSecrets(Protocol):
    """What a request to the provider needs of a sign-in: `onym.accounts.sign_in.SignInFlow` is one."""

    @property
    def acr_values(self) -> tuple[str, ...]:
        """The kinds of authentication that this sign-in asks for."""
        ...

    @property
    def max_age(self) -> int | None:
        """The largest age of the authentication in seconds, or None."""
        ...

    def derive_text(self, purpose: str) -> str:
        """Return the text for a purpose: "state", "nonce" or "verifier"."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderMetadata:
    """The members of the discovery document that are used."""

    authorization: str
    token: str
    keys: str
    userinfo: str | None
    #: RFC 9126
    pushed: str | None
    #: RP-Initiated Logout 1.0
    end_session: str | None
    #: RFC 9207: every response names its issuer
    names_issuer: bool
    #: the ways in which a client may authenticate, and the algorithms of `private_key_jwt` (() for any)
    methods: tuple[str, ...]
    assertion_algorithms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person who signed in. Only `issuer` and `subject` identify; name and address are for display.

    `acr` is the class of the authentication, `amr` its methods, `auth_time` its time in seconds since the
    epoch, and `sid` the session at the provider, if the provider tells them.
    """

    issuer: str
    subject: str
    name: str | None
    email: str | None
    acr: str | None = None
    amr: tuple[str, ...] = ()
    auth_time: float | None = None
    sid: str | None = None
    #: the groups that the provider names
    groups: tuple[str, ...] = ()

    def find_shortfall(self, acr_values: Sequence[str], max_age: int | None, at: datetime) -> str | None:
        """Return why this authentication does not satisfy the requirements (RFC 9470), or None if it does."""
        if acr_values and self.acr not in acr_values:
            return "the provider did not confirm the kind of sign-in that is required"
        if max_age is None:
            return None
        if self.auth_time is None:
            return NO_SIGN_IN_TIME
        # a sign-in from the future is not recent either: one of the clocks is wrong
        if not -_CLOCK_TOLERANCE <= at.timestamp() - self.auth_time <= max(max_age, _SHORTEST_AGE):
            return "the provider did not confirm that you signed in recently enough"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTokens:
    """The tokens of a sign-in. `expires` is the end of the access token, in seconds since the epoch."""

    access: Secret
    id_token: Secret
    refresh: Secret | None
    expires: float

    @property
    def first_end(self) -> float:
        """When the first of the access token and the ID token ends, in seconds since the epoch."""
        # the token was verified when it came
        claims = parse_json_object(decode_base64url(self.id_token.reveal().split(".")[1]))
        return min(self.expires, float(claims["exp"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """The outcome of a sign-in or a refresh: the person, and the provider's tokens."""

    person: Person
    tokens: ProviderTokens


def make_provider_network(issuer: Issuer) -> NetConfig:
    """Return how a provider is reached: its policy and its certificate authorities."""
    tls = TLSConfig(ca_files=() if issuer.ca_file is None else (issuer.ca_file,))
    return NetConfig(policy=Policy.preset("local" if issuer.network == "local" else "trusted"), tls=tls)


class OIDCProvider:
    """One provider, reached under its own policy and certificate authorities. Redirects are not followed.

    `monotonic` returns seconds, for the age of cached metadata and keys. `signer` returns the key for
    `private_key_jwt`.
    """

    def __init__(
        self,
        issuer: Issuer,
        redirect: str,
        monotonic: Callable[[], float],
        *,
        signer: Callable[[], Signer] | None = None,
    ) -> None:
        self.issuer = issuer
        self._redirect = redirect
        self._clock = monotonic
        self._signer = signer
        self._transport = AsyncTransport(replace(make_provider_network(issuer), limits=_LIMITS))
        self._lock = asyncio.Lock()
        self._metadata: tuple[float, ProviderMetadata] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._failed: float | None = None

    async def get_metadata(self) -> ProviderMetadata:
        """Return the discovery document, fetched at most once an hour.

        If the provider could not be reached, that is repeated for five seconds. Raises NetError,
        ProviderError.
        """
        known = self._find_metadata()
        if known is not None:
            return known
        async with self._lock:
            # another request may have fetched it meanwhile
            known = self._find_metadata()
            if known is None:
                url = self.issuer.issuer.rstrip("/") + "/.well-known/openid-configuration"
                reply = await self._fetch_document(url)
                known = self._parse_metadata(self._parse_object(reply, "discovery document"))
                self._metadata = (self._clock(), known)
            return known

    def _find_metadata(self) -> ProviderMetadata | None:
        """Return the discovery document if it was fetched in the last hour."""
        if self._metadata is None or self._clock() - self._metadata[0] > _METADATA_SECONDS:
            return None
        return self._metadata[1]

    async def _fetch_document(self, url: str) -> Reply:
        """Fetch the metadata or the keys. Requests that waited for one that failed fail with it."""
        if self._failed is not None and self._clock() - self._failed < _FAILURE_SECONDS:
            raise NetError(
                f"OpenID provider {self.issuer.id} could not be reached a moment ago",
                hint=f"It is tried again after {_FAILURE_SECONDS:g} seconds.",
            )
        try:
            reply = await self._send_request("GET", url)
        except NetError:
            self._failed = self._clock()
            raise
        # a proxy may answer for a provider that is away
        self._failed = self._clock() if reply.status >= _SERVER_ERROR else None
        return reply

    async def build_authorization_url(self, flow: FlowSecrets, at: datetime) -> str:
        """Return the URL to redirect the browser to (code flow, PKCE with S256: RFC 7636).

        If the provider accepts pushed requests (RFC 9126), the URL contains only a reference to this one.
        Raises AccessError if the provider rejects the pushed request, NetError and ProviderError.
        """
        known = await self.get_metadata()
        acr_values, max_age = self.merge_requirements(flow)
        query = {
            "response_type": "code",
            "client_id": self.issuer.client_id,
            "redirect_uri": self._redirect,
            "scope": " ".join(self.issuer.scopes),
            "state": flow.derive_text("state"),
            "nonce": flow.derive_text("nonce"),
            "code_challenge": oauth.make_code_challenge(flow.derive_text("verifier")),
            "code_challenge_method": "S256",
        }
        optional = {
            "acr_values": " ".join(acr_values),
            "max_age": "" if max_age is None else str(max_age),
            "prompt": self.issuer.prompt or "",
            "resource": self.issuer.resource or "",
        }
        query |= {name: value for name, value in optional.items() if value}
        if known.pushed is not None:
            query = {
                "client_id": self.issuer.client_id,
                "request_uri": await self._push_request(known.pushed, query, at),
            }
        return oauth.append_query(known.authorization, query)

    def merge_requirements(self, flow: FlowSecrets) -> tuple[tuple[str, ...], int | None]:
        """Return the `acr_values` and `max_age` to ask the provider for: what the flow and the settings want.

        If both name classes of authentication, those that are in both, else those of the flow.
        """
        ages = [age for age in (flow.max_age, self.issuer.max_age) if age is not None]
        both = tuple(value for value in flow.acr_values if value in self.issuer.acr_values)
        return both or flow.acr_values or self.issuer.acr_values, min(ages, default=None)

    def _require_all(self, person: Person, flow: FlowSecrets, at: datetime) -> None:
        """Raise AccessError unless the authentication has what the settings want, and what the flow wants.

        A flow comes from a cookie that its browser can change, so it can only add to the settings.
        """
        for acr_values, max_age in (
            (self.issuer.acr_values, self.issuer.max_age),
            (flow.acr_values, flow.max_age),
        ):
            shortfall = person.find_shortfall(acr_values, max_age, at)
            if shortfall is not None:
                hint = "Sign in again, in the way that the provider asks for."
                raise AccessError(
                    shortfall,
                    code="accounts.step-up-required",
                    hint=_NO_SIGN_IN_TIME_HINT if shortfall is NO_SIGN_IN_TIME else hint,
                )

    async def redeem_code(self, code: str, flow: FlowSecrets, at: datetime) -> SignedIn:
        """Return the person who signed in, for the code of a response.

        Raises AccessError if the provider rejects the code, or (`accounts.step-up-required`) if the
        authentication does not have what was required; SignatureError for an invalid ID token, NetError and
        ProviderError.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect,
            "code_verifier": flow.derive_text("verifier"),
        }
        if self.issuer.resource is not None:
            form["resource"] = self.issuer.resource
        known = await self.get_metadata()
        response = await self._request_tokens(known.token, form, at)
        tokens = self._parse_tokens(response, at)
        token = await self._verify_id_token(tokens, nonce=flow.derive_text("nonce"), at=at)
        more = await self._fetch_userinfo(tokens.access, token)
        person = _parse_person(token, more, self.issuer.groups_claim)
        self._require_all(person, flow, at)
        return SignedIn(person=person, tokens=tokens)

    async def refresh_tokens(self, person: Person, tokens: ProviderTokens, at: datetime) -> ProviderTokens:
        """Return new tokens for a refresh token (Core 12). The ID token stays if there is no new one.

        Raises AccessError if the provider rejects the refresh token, SignatureError for an ID token that is
        invalid or about another person, NetError and ProviderError.
        """
        if tokens.refresh is None:
            raise _make_refusal()
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh.reveal()}
        known = await self.get_metadata()
        fresh = await self._request_tokens(known.token, form, at)
        kept = {"id_token": tokens.id_token.reveal(), "refresh_token": tokens.refresh.reveal()}
        renewed = self._parse_tokens({**kept, **fresh}, at)
        if "id_token" in fresh:
            token = await self._verify_id_token(renewed, nonce=None, at=at)
            if token.subject != person.subject:
                raise self._make_error("the refreshed ID token is about another person")
        return renewed

    async def verify_logout(self, token: str, at: datetime) -> LogoutToken:
        """Return a verified logout token (Back-Channel Logout 1.0, 2.6); the caller checks that it is new.

        Raises SignatureError, NetError and ProviderError.
        """
        from onym.sign.jws import verify_logout_token  # late: cryptography is heavy

        issuer = self.issuer
        return await self._verify_with_keys(
            lambda keys: verify_logout_token(
                token, keys, issuer=issuer.issuer, client_id=issuer.client_id, at=at
            )
        )

    async def build_sign_out_url(self, back: str) -> str | None:
        """Return the URL that signs a person out at the provider (RP-Initiated Logout 1.0, 2), or None.

        `back` is the URL to return to, which must be registered there. The URL contains no ID token: URLs get
        into histories and logs. So the provider asks the person for confirmation. The metadata may be old, so
        that nobody waits here for a provider that is away. Raises NetError and ProviderError if it was never
        fetched.
        """
        known = await self.get_metadata() if self._metadata is None else self._metadata[1]
        endpoint = known.end_session
        if endpoint is None:
            return None
        query = {"client_id": self.issuer.client_id, "post_logout_redirect_uri": back}
        return oauth.append_query(endpoint, query)

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    def _parse_metadata(self, document: Mapping[str, Any]) -> ProviderMetadata:
        # Discovery 4.3: the document must name exactly the issuer that was requested
        if document.get("issuer") != self.issuer.issuer:
            raise self._make_error("the discovery document names another issuer")
        if "S256" not in _get_list(document, "code_challenge_methods_supported", "S256"):
            raise self._make_error("the provider does not support PKCE with S256")
        return ProviderMetadata(
            authorization=self._parse_endpoint(document, "authorization_endpoint"),
            token=self._parse_endpoint(document, "token_endpoint"),
            keys=self._parse_endpoint(document, "jwks_uri"),
            userinfo=self._parse_optional_endpoint(document, "userinfo_endpoint"),
            pushed=self._parse_optional_endpoint(document, "pushed_authorization_request_endpoint"),
            end_session=self._parse_optional_endpoint(document, "end_session_endpoint"),
            names_issuer=document.get("authorization_response_iss_parameter_supported") is True,
            methods=_get_texts(document, "token_endpoint_auth_methods_supported", "client_secret_basic"),
            assertion_algorithms=_get_texts(document, "token_endpoint_auth_signing_alg_values_supported"),
        )

    def _parse_optional_endpoint(self, document: Mapping[str, Any], name: str) -> str | None:
        return self._parse_endpoint(document, name) if name in document else None

    def _parse_endpoint(self, document: Mapping[str, Any], name: str) -> str:
        url = document.get(name)
        allowed = ("https://", "http://") if self.issuer.network == "local" else ("https://",)
        good = isinstance(url, str) and url.startswith(allowed) and url.isascii() and url.isprintable()
        if not good or len(str(url)) > _LONGEST_URL or set(str(url)) & set(' "<>\\#'):
            raise self._make_error(f"{name} of the discovery document is not an https URL")
        return str(url)

    async def _push_request(self, endpoint: str, query: dict[str, str], at: datetime) -> str:
        reply = await self._send_form(endpoint, query, at)
        if reply.status in {400, 401, 403}:
            raise _make_refusal(reply)
        reference = self._parse_object(reply, "pushed request", 201).get("request_uri")
        if not isinstance(reference, str) or not 0 < len(reference) <= _LONGEST_URL:
            raise self._make_error("the response to the pushed request has no request_uri")
        return reference

    async def _request_tokens(self, endpoint: str, form: dict[str, str], at: datetime) -> dict[str, Any]:
        reply = await self._send_form(endpoint, form, at)
        if reply.status in {400, 401, 403}:
            raise _make_refusal(reply)
        return self._parse_object(reply, "token response")

    async def _send_form(self, url: str, form: dict[str, str], at: datetime) -> Reply:
        """Send a form, with the credentials of this client."""
        known = await self.get_metadata()
        client_id, secret = self.issuer.client_id, self.issuer.client_secret
        headers: _Headers = (("Content-Type", "application/x-www-form-urlencoded"),)
        if secret is not None and "client_secret_basic" in known.methods:
            headers += (("Authorization", oauth.encode_basic_auth(client_id, secret)),)
        else:
            form = {**form, "client_id": client_id}
            if secret is not None:
                form["client_secret"] = secret.reveal()
            elif self._signer is not None and "private_key_jwt" in known.methods:
                form |= self._sign_assertion(self._signer(), known, at)
        return await self._send_request("POST", url, headers, oauth.encode_form(form))

    def _sign_assertion(self, signer: Signer, known: ProviderMetadata, at: datetime) -> dict[str, str]:
        from onym.sign.jws import sign_client_assertion  # late: cryptography is heavy

        if known.assertion_algorithms and signer.algorithm not in known.assertion_algorithms:
            raise self._make_error(f"the provider does not accept client keys for {signer.algorithm}")
        issuer = self.issuer
        assertion = sign_client_assertion(
            signer, client_id=issuer.client_id, audience=issuer.issuer, at=at.timestamp()
        )
        return {"client_assertion_type": oauth.ASSERTION_TYPE, "client_assertion": assertion.reveal()}

    def _parse_tokens(self, response: Mapping[str, Any], at: datetime) -> ProviderTokens:
        token, access = response.get("id_token"), response.get("access_token")
        if not isinstance(token, str) or not isinstance(access, str):
            raise self._make_error("the token response has no id_token or access_token")
        refresh, life = response.get("refresh_token"), response.get("expires_in")
        refresh = refresh if isinstance(refresh, str) and refresh else None
        if max(len(token), len(access), len(refresh or "")) > oauth.MAX_TOKEN:
            raise self._make_error(f"a token is longer than {oauth.MAX_TOKEN} characters")
        seconds = life if isinstance(life, int) and 0 < life < _LONGEST_LIFE else _USUAL_LIFE
        return ProviderTokens(
            access=Secret(access),
            id_token=Secret(token),
            refresh=None if refresh is None else Secret(refresh),
            expires=at.timestamp() + seconds,
        )

    async def _verify_id_token(self, tokens: ProviderTokens, *, nonce: str | None, at: datetime) -> IDToken:
        from onym.sign.jws import verify_id_token  # late: cryptography is heavy

        issuer = self.issuer
        return await self._verify_with_keys(
            lambda keys: verify_id_token(
                tokens.id_token.reveal(),
                keys,
                issuer=issuer.issuer,
                client_id=issuer.client_id,
                nonce=nonce,
                at=at,
                access_token=tokens.access.reveal(),
            )
        )

    async def _verify_with_keys(self, verify: Callable[[KeySet], _Token]) -> _Token:
        """Verify with the known keys, and with the keys of now if none of them fits."""
        for reload in (False, True):
            keys = await self.get_keys(reload=reload)
            try:
                return verify(keys)
            except SignatureError as error:
                # the provider may have changed its keys since
                if reload or error.code != "sign.unknown-key":
                    raise
        raise AssertionError  # pragma: no cover - the second round returns or raises

    async def get_keys(self, *, reload: bool = False) -> KeySet:
        """Return the provider's keys, fetched at most once an hour; with `reload`, at most once a minute.

        Raises SignatureError for an unusable key set, NetError and ProviderError.
        """
        from onym.sign.keys import read_keys  # late: cryptography is heavy

        known = await self.get_metadata()
        longest = _RELOAD if reload else _METADATA_SECONDS
        if self._keys is not None and self._clock() - self._keys[0] <= longest:
            return self._keys[1]
        async with self._lock:
            if self._keys is None or self._clock() - self._keys[0] > longest:
                reply = await self._fetch_document(known.keys)
                if reply.status != 200:
                    raise self._make_error(f"the request for the keys failed with status {reply.status}")
                self._keys = (self._clock(), read_keys(reply.body))
            return self._keys[1]

    async def _fetch_userinfo(self, access: Secret, token: IDToken) -> dict[str, Any]:
        """Return more claims if the ID token has no name and the provider has an endpoint (Core 5.3)."""
        endpoint = (await self.get_metadata()).userinfo
        if endpoint is None or token.text("name") or self.issuer.resource is not None:
            return {}
        reply = await self._send_request(
            "GET", endpoint, (("Authorization", Secret(f"Bearer {access.reveal()}")),)
        )
        claims = self._parse_object(reply, "userinfo response")
        if claims.get("sub") != token.subject:
            raise self._make_error("the userinfo response is about another person")
        return claims

    async def _send_request(self, method: str, url: str, headers: _Headers = (), body: bytes = b"") -> Reply:
        origin, target = self._parse_url(url)
        headers = (("Accept", "application/json"), *headers)
        request = HTTPRequest(method=method, origin=origin, target=target, headers=headers, body=body)
        return await self._transport.send(Send(request, timeout=_TIMEOUT))

    def _parse_url(self, url: str) -> tuple[Origin, str]:
        try:
            uri = URI.parse(url).normalize()
        except URIError:
            raise self._make_error("an endpoint of the discovery document is not a URL") from None
        if uri.scheme not in ("https", "http") or not uri.host or uri.userinfo or uri.fragment is not None:
            raise self._make_error("an endpoint of the discovery document is not an http or https URL")
        return split_url(uri)

    def _parse_object(self, reply: Reply, name: str, status: int = 200) -> dict[str, Any]:
        if reply.status != status:
            raise self._make_error(f"the request for the {name} failed with status {reply.status}")
        try:
            return parse_json_object(reply.body)
        except ValueError as error:
            raise self._make_error(f"the {name} {error}") from None

    def _make_error(self, message: str) -> MalformedResponseError:
        return MalformedResponseError(message, endpoint=f"OpenID provider {self.issuer.id}")


def _get_list(document: Mapping[str, Any], name: str, default: str) -> list[Any]:
    """Return a member that is a list, or a list of the default if there is none."""
    value = document.get(name, [default])
    return value if isinstance(value, list) else []


def _get_texts(document: Mapping[str, Any], name: str, *default: str) -> tuple[str, ...]:
    """Return the strings of a member that is a list, or the default if there is none."""
    value = document.get(name)
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else default


def _make_refusal(reply: Reply | None = None) -> AccessError:
    try:
        reason = {} if reply is None else parse_json_object(reply.body)
    except ValueError:
        reason = {}
    # any other text of the provider is not repeated
    code = oauth.parse_error_code(reason.get("error"))
    return AccessError(
        "the provider rejected this sign-in" + (f" ({code})" if code else ""),
        code="accounts.sign-in-failed",
        hint="Sign in again. If it fails again, ask the operator to check the client ID and secret.",
    )


def _parse_person(token: IDToken, userinfo: Mapping[str, Any], groups_claim: str) -> Person:
    claims = {**token.claims, **userinfo}
    names = (claims.get("name"), claims.get("preferred_username"))
    name = next((name for name in names if isinstance(name, str) and name.strip()), None)
    # `email_verified` is about the address beside it, not about that of the other source
    source = userinfo if "email" in userinfo else token.claims
    email = source.get("email")
    # an unverified address may belong to another person
    verified = isinstance(email, str) and source.get("email_verified") is True
    return Person(
        issuer=token.issuer,
        subject=token.subject,
        name=None if name is None else name[:MAX_NAME],
        email=email[:MAX_EMAIL] if verified and isinstance(email, str) else None,
        acr=token.text("acr"),
        amr=token.methods,
        auth_time=token.authenticated,
        sid=token.text("sid"),
        groups=_parse_groups(claims.get(groups_claim)),
    )


def _parse_groups(value: object) -> tuple[str, ...]:
    """Return the groups of a claim, which is a list of texts, or one text."""
    groups = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(
        group for group in groups[:_MOST_GROUPS] if isinstance(group, str) and len(group) <= _LONGEST_GROUP
    )
