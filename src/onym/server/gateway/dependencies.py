"""Dependencies of the gateway's handlers: request context, calling program, limiter, audit record, results.

The gateway is a protected resource (RFC 9728). A token of a program stays at the gateway: an authority gets
its own, from `onym.ai.gateway.grants`. The result of a form belongs to the browser that requested it. A full
store drops the oldest result of the client that uses the most space.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect

from onym.ai.endpoint.context import AccessRequest, Caller
from onym.ai.endpoint.oauth import MAX_ACCESS_TOKEN, JWTAuthorization
from onym.ai.endpoint.sender import verify_request_binding
from onym.ai.messages import get_client_certificate, get_field_values
from onym.common.concurrency import TOTAL, ConcurrencyLimiter
from onym.common.text import decode_base64url, parse_json_object
from onym.errors import AIIPError, ConfigError, DeniedError
from onym.net.messages import Headers
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.types import Receive, Scope

    from onym.accounts.oidc import OIDCProvider, Person
    from onym.ai.client import AsyncAIClient
    from onym.ai.gateway.audit import AuditLog
    from onym.ai.messages import Fields
    from onym.ai.records import Invocation, Result
    from onym.server.clients import BucketKind, CSRFKey, SharedRates
    from onym.server.gateway.sessions import PersonSession, PersonSessions
    from onym.server.gateway.settings import GatewaySettings
    from onym.sign.keys import Signer

_AUTHORIZATION: Final = b"authorization"


class Proof(StrEnum):
    """How a program proved that it is the client of its token, the strongest way last."""

    BEARER = "bearer"
    DPOP = "dpop"
    CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that authenticated with an access token for this gateway.

    `issuer` issued the token, and `caller` has its claims and the keys that the program has proved.
    """

    issuer: str
    caller: Caller
    token: Secret = field(repr=False)

    @property
    def client(self) -> str:
        """The program's client ID at the issuer."""
        return self.caller.client_id or ""

    @property
    def person(self) -> str | None:
        """The person's subject at the issuer, None for a token of the program itself.

        Such a token has the client ID as its subject (RFC 9068 2.2). A client that chose a person's subject
        as its ID must not become that person (RFC 9068 5).
        """
        return None if self.caller.subject == self.caller.client_id else self.caller.subject

    @property
    def proof(self) -> Proof:
        """How the program proved that the token is its own."""
        if self.caller.certificate is not None:
            return Proof.CERTIFICATE
        return Proof.BEARER if self.caller.key is None else Proof.DPOP

    @property
    def thumbprint(self) -> str | None:
        """The thumbprint of the DPoP key or the certificate that the program proved, if any."""
        return self.caller.certificate or self.caller.key

    def require_bound_to(self, invocation: Invocation, task_target: str | None = None) -> None:
        """Raise AIIPError `aiip.sender-constraint` if the program's DPoP proof is for another call.

        `task_target` is set for a request to a part of a task (`format_task_target`).
        """
        verify_request_binding(self.caller, lambda: invocation.compute_request_hash(task_target))


class ProgramRequest(Protocol):
    """The part of a request in progress that shows its program. `program` and `dpop_nonce` are set here."""

    scope: Scope
    program: Program | None
    dpop_nonce: str | None

    @property
    def path(self) -> bytes:
        """The path as it was sent."""
        ...

    @property
    def fields(self) -> Fields:
        """The header fields, names in lower case."""
        ...


class ProgramAuthenticator:
    """Authenticates programs. `authorizations` verify the tokens of one issuer each, all for `base_url`.

    Every token must have `scopes`, by issuer.
    """

    def __init__(
        self,
        base_url: str,
        authorizations: Sequence[JWTAuthorization],
        scopes: Mapping[str, frozenset[str]],
    ) -> None:
        self._base_url = base_url
        self._authorizations = {authorization.issuer: authorization for authorization in authorizations}
        self._scopes = scopes
        #: the values of WWW-Authenticate for a request without a token
        self.challenges = tuple(
            dict.fromkeys(
                challenge
                for authorization in authorizations
                for challenge in authorization.list_challenges(scopes[authorization.issuer])
            )
        )

    async def authenticate(self, visit: ProgramRequest) -> Program | None:
        """Return the program that sent this request, None for a request without a token.

        The context keeps it as `program`. Raises AIIPError with the challenge for the response, as
        `JWTAuthorization.authorize` does.
        """
        if visit.program is not None or not get_field_values(visit.fields, _AUTHORIZATION):
            return visit.program
        return await self.require(visit)

    async def require(self, visit: ProgramRequest) -> Program:
        """Return the program that sent this request. Raises AIIPError, also for a request without a token."""
        if visit.program is not None:
            return visit.program
        token = _get_token(visit)
        authorization = self._choose(token)
        request = AccessRequest(
            method=str(visit.scope["method"]),
            url=self._base_url + visit.path.decode("latin-1"),
            headers=Headers(
                [(name.decode("latin-1"), value.decode("latin-1")) for name, value in visit.fields]
            ),
            certificate=get_client_certificate(visit.scope),
            scopes=self._scopes[authorization.issuer],
        )
        try:
            caller = await authorization.authorize(request)
        except AIIPError as error:
            visit.dpop_nonce = error.dpop_nonce
            raise
        visit.dpop_nonce = caller.next_nonce
        visit.program = Program(issuer=authorization.issuer, caller=caller, token=Secret(token))
        return visit.program

    def build_metadata(self) -> dict[str, Any]:
        """Return the metadata of the gateway as a protected resource (RFC 9728 2)."""
        documents = [authorization.metadata() for authorization in self._authorizations.values()]
        return {
            **documents[0],
            "authorization_servers": list(self._authorizations),
            "scopes_supported": sorted({scope for found in self._scopes.values() for scope in found}),
            # what one of the servers does not bind is not required
            **{name: all(document.get(name) for document in documents) for name in _BINDINGS},
        }

    async def close(self) -> None:
        """Close the connections to the authorization servers."""
        for authorization in self._authorizations.values():
            await authorization.close()

    def _choose(self, token: str) -> JWTAuthorization:
        """Return what verifies a token of its issuer. The claim is not believed before that."""
        first = next(iter(self._authorizations.values()))
        if len(self._authorizations) == 1 or len(token) > MAX_ACCESS_TOKEN:
            return first
        try:
            issuer = parse_json_object(decode_base64url(token.split(".")[1])).get("iss")
        except (IndexError, ValueError):
            return first
        return self._authorizations.get(issuer, first) if isinstance(issuer, str) else first


#: members of the metadata that demand a bound token
_BINDINGS: Final = ("dpop_bound_access_tokens_required", "tls_client_certificate_bound_access_tokens")


def _get_token(visit: ProgramRequest) -> str:
    """Return the token of the Authorization field, whatever its form; "" without one."""
    values = get_field_values(visit.fields, _AUTHORIZATION)
    return values[0].decode("latin-1").partition(" ")[2].strip(" ") if values else ""


@dataclass(slots=True, kw_only=True)
class RequestContext:
    """A request in progress. `client` is the key of the client's address, `cookie` the browser's secret.

    The secret is the cookie of the browser's session, else that of its forms. `session` is the session of the
    person who signed in, once `onym.server.gateway.people.find_session` has looked it up, and `program` the
    program that sent the request, once `ProgramAuthenticator` has verified its token. `new_cookies` are
    Set-Cookie values for the response, also for that of an error, and `dpop_nonce` is for the next proof.
    `step_up_path` leads a person to the sign-in that the request lacks.

    `notes` become the audit record. It is written once (then `recorded` is true), if `audited`, and by the
    stream itself if `streaming`.
    """

    scope: Scope = field(repr=False)
    receive: Receive = field(repr=False)
    id: str
    client: str
    cookie: str | None = field(repr=False)
    form_key: CSRFKey = field(repr=False)
    cookies: Mapping[str, str] = field(default_factory=dict, repr=False)
    session: PersonSession | None = None
    program: Program | None = None
    new_cookies: list[str] = field(default_factory=list, repr=False)
    dpop_nonce: str | None = field(default=None, repr=False)
    step_up_path: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    audited: bool = False
    streaming: bool = False
    recorded: bool = False

    @property
    def method(self) -> str:
        """The method; HEAD is a GET whose body is not sent."""
        return "GET" if self.scope["method"] == "HEAD" else str(self.scope["method"])

    @property
    def path(self) -> bytes:
        """The path as it was sent, byte for byte."""
        return bytes(self.scope["raw_path"])

    @property
    def query(self) -> bytes:
        """The query as it was sent."""
        return bytes(self.scope["query_string"])

    @property
    def target(self) -> str:
        """Path and query as they were sent, for a link back to this page."""
        return (self.path + b"?" + self.query if self.query else self.path).decode("latin-1")

    @property
    def asks_as_service(self) -> bool:
        """Whether the gateway asks the authority in its own name."""
        return self.notes.get("route") == "service"

    @property
    def fields(self) -> Fields:
        """The header fields, names in lower case."""
        return self.scope["headers"]  # type: ignore[no-any-return]

    def get_field(self, name: str) -> str | None:
        """Return the first value of a header field."""
        values = get_field_values(self.fields, name.encode("ascii"))
        return values[0].decode("latin-1") if values else None

    @property
    def wants_page(self) -> bool:
        """Is this a browser that should see a page?"""
        accept = self.get_field("accept") or ""
        return "text/html" in accept

    @property
    def trace_id(self) -> str | None:
        """The trace ID of the W3C Trace Context, or None."""
        parts = (self.get_field("traceparent") or "").split("-")
        good = len(parts) == 4 and len(parts[1]) == 32 and parts[1].isalnum() and parts[1].isascii()
        return parts[1] if good else None


def make_limiter(*, total: int, client: int, authority: int) -> ConcurrencyLimiter:
    """Return the limiter for exchanges: all of them, those of one client and those with one authority."""
    return ConcurrencyLimiter({TOTAL: total, "client": client, "authority": authority}, _make_limit_error)


def _make_limit_error(group: str) -> AIIPError:
    return AIIPError(
        "the gateway runs as many exchanges as it allows" + ("" if group == TOTAL else f" for one {group}"),
        code="aiip.unavailable",
        retryable=True,
        hint="Try again in a second.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """The services of one gateway. `clock` returns the time in UTC, `jwks` a key set.

    `sessions` are those of the people who signed in, and None if the settings have no `providers`; `programs`
    authenticates programs, and is None if they have no `programs`.
    """

    settings: GatewaySettings
    upstream: AsyncAIClient
    signer: Callable[[], Signer]
    jwks: Callable[[bool], bytes]
    journal: AuditLog | None
    audit_key: bytes
    rates: SharedRates
    slots: ConcurrencyLimiter
    results: ResultStore
    clock: Callable[[], datetime]
    providers: Mapping[str, OIDCProvider] = field(default_factory=dict)
    sessions: PersonSessions | None = None
    programs: ProgramAuthenticator | None = None


_LOG: Final = logging.getLogger("onym.server.gateway")


async def read_body(parts: Dependencies, visit: RequestContext) -> bytes:
    """Read the body up to its limit. Raises AIIPError `aiip.too-large`."""
    limit = parts.settings.body_limit
    lengths = get_field_values(visit.fields, b"content-length")
    if lengths and (len(lengths[0]) > 15 or int(lengths[0]) > limit):
        raise _make_too_large_error(limit)
    chunks, size = [], 0
    while True:
        message = await visit.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        size += len(message.get("body", b""))
        if size > limit:
            raise _make_too_large_error(limit)
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


_FORM_MEDIA_TYPE: Final = "application/x-www-form-urlencoded"
#: seconds after which an unfinished page is loaded again
_RELOAD_SECONDS: Final = 5
_MOST_FIELDS: Final = 64


async def require_rate(
    parts: Dependencies, kind: BucketKind, key: str, message: str, *, times: int = 1
) -> None:
    """Count a request. Raises AIIPError `aiip.too-many-requests` with the seconds until there is room."""
    wait = await parts.rates.take_token(kind, key, times=times)
    if wait:
        error = AIIPError(message, code="aiip.too-many-requests", retryable=True)
        error.retry_after = ceil(wait)
        raise error


async def read_form(parts: Dependencies, visit: RequestContext) -> dict[str, str]:
    """Return the fields of a form of this gateway's pages.

    Raises DeniedError `aiip.forged` for a form token that this browser did not get.
    """
    return parse_form(visit, await read_body(parts, visit))


def is_form(visit: RequestContext) -> bool:
    """Does the request have the media type of a form?"""
    kind = (visit.get_field("content-type") or "").partition(";")[0].strip().lower()
    return kind == _FORM_MEDIA_TYPE


def parse_form(visit: RequestContext, body: bytes) -> dict[str, str]:
    """Return the fields of a form in `body`. Raises as `read_form`."""
    if not is_form(visit):
        raise AIIPError(f"a form must have the type {_FORM_MEDIA_TYPE}", code="aiip.unsupported-media-type")
    form = dict(parse_pairs(body))
    if not visit.form_key.matches_token(form.get("csrf_token", "")):
        raise DeniedError(
            "the form's token is missing or belongs to another browser or session",
            code="aiip.forged",
            clause="AIIP/HTTPS v1 3.15, attack 34",
            hint="Reload the page and send the form again.",
        )
    return form


def parse_pairs(content: bytes) -> list[tuple[str, str]]:
    """Return the names and values of a query or a form. Raises AIIPError if there are too many."""
    try:
        return parse_qsl(
            content.decode("ascii", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise AIIPError(f"the form has more than {_MOST_FIELDS} fields", code="aiip.bad-request") from None


def make_reload_headers(visit: RequestContext) -> dict[str, str]:
    """Return the header with which a browser loads an unfinished page again, without a script.

    It is empty if the query has `reload=off`: a new load moves the focus of a keyboard or a screen reader.
    """
    is_off = ("reload", "off") in parse_pairs(visit.query)
    return {} if is_off else {"refresh": str(_RELOAD_SECONDS)}


def record_event(
    parts: Dependencies, visit: RequestContext, event: str, person: Person | None = None, **members: Any
) -> None:
    """Write an audit record about a person, such as a sign-in; the person appears as a keyed hash.

    Raises AIIPError `aiip.unavailable` if the log cannot be written.
    """
    line = {"event": event, "id": visit.id, **members}
    if person is not None:
        line["person"] = hash_person(parts.audit_key, person.issuer, person.subject)
    _append_line(parts, visit, line)


def hash_person(key: bytes, issuer: str, subject: str) -> str:
    """Return the name of a person in the audit log: a keyed hash."""
    return hmac.new(key, f"person {issuer} {subject}".encode(), "sha256").hexdigest()[:32]


def _append_line(parts: Dependencies, visit: RequestContext, line: dict[str, Any]) -> None:
    if parts.journal is None:
        return
    try:
        parts.journal.append(line, at=parts.clock())
    except (OSError, ConfigError) as error:
        _LOG.error("request %s: the audit log cannot be written (%s)", visit.id, error)
        raise AIIPError(
            "the audit log cannot be written, so the request was rejected", code="aiip.unavailable"
        ) from error


def record_exchange(
    parts: Dependencies, visit: RequestContext, event: Literal["begun", "exchange"] = "exchange"
) -> None:
    """Write the audit record of a request about an ai URI. A stream has another record when it begins.

    Raises AIIPError `aiip.unavailable` if the log cannot be written: the request then fails.
    """
    if parts.journal is None or not visit.audited or visit.recorded:
        return
    line = {"event": event, "id": visit.id, "method": visit.scope["method"], **visit.notes}
    _append_line(parts, visit, line)
    visit.recorded = event == "exchange"


def _make_too_large_error(limit: int) -> AIIPError:
    return AIIPError(f"the body is larger than {limit} bytes", code="aiip.too-large")


#: seconds that a result is stored, bytes of all bodies, and the number of results
RESULT_SECONDS: Final = 15 * 60
_MOST_OCTETS: Final = 64 * 1024 * 1024
_MOST: Final = 1_000
#: bytes of a result without its body
_EACH: Final = 8 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResult:
    """A result with the gateway's receipt, its owner and its expiry (monotonic seconds).

    `owner` is the browser's secret, and `person` the issuer and subject of the person who had signed in.
    `as_service` tells that the gateway asked in its own name.
    """

    result: Result
    witness: str = field(repr=False)
    owner: str = field(repr=False)
    client: str = field(repr=False)
    person: tuple[str, str] | None = field(repr=False)
    as_service: bool
    at: datetime
    until: float

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return _EACH + len(self.result.body)


class ResultStore:
    """The results of one gateway. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float], *, octets: int = _MOST_OCTETS, most: int = _MOST) -> None:
        self._clock = clock
        self._most_octets = octets
        self._most = most
        self._octets = 0
        self._sizes: Counter[str] = Counter()
        self._results: OrderedDict[str, StoredResult] = OrderedDict()

    def __len__(self) -> int:
        return len(self._results)

    def put(
        self,
        result: Result,
        witness: str,
        owner: str,
        at: datetime,
        *,
        client: str = "",
        person: tuple[str, str] | None = None,
        as_service: bool = False,
    ) -> str:
        """Store a result and return its random name. `client` is the key of the client's address.

        `person` is the issuer and subject of the person who got the result, if one has signed in.
        """
        name = secrets.token_urlsafe(16)
        until = self._clock() + RESULT_SECONDS
        stored = StoredResult(
            result=result,
            witness=witness,
            owner=owner,
            client=client,
            person=person,
            as_service=as_service,
            at=at,
            until=until,
        )
        self._results[name] = stored
        self._octets += len(result.body)
        self._sizes[client] += stored.size
        self._evict_results()
        return name

    def find(self, name: str, owner: str) -> StoredResult | None:
        """Return the result of this name and owner, or None."""
        self._evict_results()
        stored = self._results.get(name)
        if stored is None or not hmac.compare_digest(stored.owner.encode(), owner.encode()):
            return None
        return stored

    def list_results(self, owner: str) -> list[tuple[str, StoredResult]]:
        """Return the names and results of this owner, the newest first."""
        self._evict_results()
        known = owner.encode()
        return [
            (name, stored)
            for name, stored in reversed(self._results.items())
            if hmac.compare_digest(stored.owner.encode(), known)
        ]

    def _evict_results(self) -> None:
        now = self._clock()
        while self._results and next(iter(self._results.values())).until <= now:
            self._drop_result(next(iter(self._results)))
        while len(self._results) > 1 and (
            self._octets > self._most_octets or len(self._results) > self._most
        ):
            greedy = max(self._sizes, key=self._sizes.__getitem__)
            self._drop_result(next(name for name, result in self._results.items() if result.client == greedy))

    def _drop_result(self, name: str) -> None:
        dropped = self._results.pop(name)
        self._octets -= len(dropped.result.body)
        self._sizes[dropped.client] -= dropped.size
        if not self._sizes[dropped.client]:
            del self._sizes[dropped.client]
