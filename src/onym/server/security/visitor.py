"""The visitor: the sender of a request, with account, roles and scopes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from onym.accounts.records import Account, ApiToken, Session
from onym.errors import AccessError, OnymError
from onym.registry.accounts import Scope, get_registry_roles, is_administrator, limit_roles
from onym.registry.records import Actor, Role
from onym.server.security.clients import CSRFKey
from onym.server.services import get_request_state

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """The sender of a request. `via` is how they signed in, or None.

    `scopes` are those of the API token; a browser session has all. `address` is the client's address, also
    behind trusted proxies. `failure` is the error of credentials that are invalid.
    """

    account: Account | None = None
    via: Literal["session", "token"] | None = None
    session: Session | None = None
    token: ApiToken | None = None
    scopes: frozenset[str] = frozenset()
    address: str | None = None
    failure: OnymError | None = None
    form_key: CSRFKey = field(default_factory=CSRFKey)

    @property
    def csrf_token(self) -> str:
        """The token that forms send as `csrf_token`, and scripts in `X-CSRF-Token`."""
        return self.form_key.token

    def list_roles(self, registry: str) -> frozenset[Role]:
        """Return the roles in a registry that the token's scopes allow.

        Every signed-in visitor is a registrant: RFC 7595 7.2 lets anyone request a registration.
        """
        if self.account is None:
            return frozenset()
        return limit_roles(get_registry_roles(self.account, registry) | {Role.REGISTRANT}, self.scopes)

    @property
    def is_administrator(self) -> bool:
        """May the visitor manage accounts now?"""
        return self.account is not None and is_administrator(self.account) and Scope.ADMIN in self.scopes


def get_visitor(request: HTTPConnection) -> Visitor:
    """Return the visitor who sent this request; without a sign-in it has no account."""
    visitor = get_request_state(request.scope).get("visitor")
    return visitor if isinstance(visitor, Visitor) else Visitor()


def require_access(
    visitor: Visitor,
    *,
    registry: str | None = None,
    roles: Iterable[Role] = (),
    scope: Scope | str | None = None,
    administrator: bool = False,
) -> Account:
    """Return the visitor's account if it has the required access. Raises AccessError.

    If `roles` are given, the account needs one of them in `registry`. A token needs `scope`.
    """
    if visitor.account is None:
        raise AccessError(
            "this needs a signed-in account",
            code="accounts.not-signed-in",
            hint="Sign in, or send an API token as Authorization: Bearer.",
        )
    if scope is not None and scope not in visitor.scopes:
        raise AccessError(
            f"this API token has no scope {str(scope)!r}",
            code="accounts.missing-scope",
            field="scope",
            hint="Create a token with that scope on the account page.",
        )
    wanted = frozenset(roles)
    if wanted and (registry is None or visitor.list_roles(registry).isdisjoint(wanted)):
        names = " or ".join(sorted(wanted))
        raise AccessError(
            f"this needs the role {names}" + (f" in {registry}" if registry else ""),
            code="registry.wrong-role",
            field="role",
            hint=f"The operator can grant it: onym registry user roles {visitor.account.login} "
            f"--add {min(wanted)}" + (f" -r {registry}" if registry else ""),
        )
    if administrator and not visitor.is_administrator:
        raise AccessError("this needs an administrator", code="registry.wrong-role", field="role")
    return visitor.account


def make_actor(visitor: Visitor, registry: str) -> Actor:
    """Return the visitor as an actor of the engine and the log. Raises AccessError without a sign-in."""
    account = require_access(visitor)
    return Actor(id=account.id, roles=visitor.list_roles(registry))
