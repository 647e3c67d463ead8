"""Programs at a gateway: an access token for the gateway itself, and the person that the program acts for.

The gateway is a protected resource (RFC 9728) whose identifier is its origin. A program sends a token that
the provider of a `[[programs]]` table has issued for the gateway, bound to a DPoP key or a client certificate
if the program has one. The token says who the person and the client are. It stays at the gateway: an
authority gets a token of its own, which `onym.ai.gateway.grants` obtains.

Handlers use two methods of `ProgramAuthenticator`. `authenticate` returns the program of a request, or None
for a request without a token; `require` raises 401 for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from onym.ai.endpoint.context import AccessRequest, Caller
from onym.ai.endpoint.oauth import MAX_ACCESS_TOKEN, JWTAuthorization
from onym.ai.endpoint.sender import verify_request_binding
from onym.ai.request_validation import get_client_certificate, get_field_values
from onym.common.strict_json import decode_base64url, parse_json_object
from onym.errors import AIIPError
from onym.net.messages import Headers
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.types import Scope

    from onym.ai.records import Invocation
    from onym.ai.request_validation import Fields

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
