"""The visitor: who sent a request, and what they may do."""

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
    """Who sent a request. `via` says how they signed in; None: nobody did.

    `scopes` is what an API token may do; a browser's session may do all of it. `address` is the client's,
    behind trusted proxies too. `failure` is what was wrong with credentials that came with the request.
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
        """What forms carry in the field `csrf_token`, and scripts in `X-CSRF-Token`."""
        return self.form_key.token

    def list_roles(self, registry: str) -> frozenset[Role]:
        """The roles held in a registry, as far as the token's scopes let them be used.

        Whoever is signed in is a registrant: RFC 7595 7.2 lets anybody ask.
        """
        if self.account is None:
            return frozenset()
        return limit_roles(get_registry_roles(self.account, registry) | {Role.REGISTRANT}, self.scopes)

    @property
    def is_administrator(self) -> bool:
        """May the visitor manage accounts now?"""
        return self.account is not None and is_administrator(self.account) and Scope.ADMIN in self.scopes


def get_visitor(request: HTTPConnection) -> Visitor:
    """The visitor who sent this request; one without an account where nobody is signed in."""
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
    """The visitor's account, if it may do this. Raises AccessError.

    One of `roles` must be held in `registry`, where any are given; a token must have `scope`.
    """
    if visitor.account is None:
        raise AccessError(
            "this needs an account",
            code="accounts.not-signed-in",
            hint="sign in, or send an API token as Authorization: Bearer",
        )
    if scope is not None and scope not in visitor.scopes:
        raise AccessError(
            f"this API token has no scope {str(scope)!r}",
            code="accounts.missing-scope",
            field="scope",
            hint="make a token with that scope on the account page",
        )
    wanted = frozenset(roles)
    if wanted and (registry is None or visitor.list_roles(registry).isdisjoint(wanted)):
        names = " or ".join(sorted(wanted))
        raise AccessError(
            f"this needs the role {names}" + (f" in {registry}" if registry else ""),
            code="registry.wrong-role",
            field="role",
            hint="roles are given by the operator: onym registry user",
        )
    if administrator and not visitor.is_administrator:
        raise AccessError("this is the administrator's", code="registry.wrong-role", field="role")
    return visitor.account


def make_actor(visitor: Visitor, registry: str) -> Actor:
    """The visitor as the engine and the log know them. Raises AccessError where nobody is signed in."""
    account = require_access(visitor)
    return Actor(id=account.id, roles=visitor.list_roles(registry))
