"""What the handlers of one application share: settings, store, clock, pages and the sign-in machinery."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from onym.registry.store import Store
    from onym.server.auth.oidc import Provider
    from onym.server.auth.passwords import Passwords
    from onym.server.pages import Pages
    from onym.server.security.rates import Rates
    from onym.server.settings import Settings

__all__ = ["Services", "services", "state"]

_STATE: Final = "onym"


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """One application's parts. `clock` gives the time in UTC, `monotonic` seconds that only grow."""

    settings: Settings
    store: Store
    clock: Callable[[], datetime]
    monotonic: Callable[[], float]
    pages: Pages
    passwords: Passwords
    rates: Rates
    providers: Mapping[str, Provider]


def services(request: HTTPConnection) -> Services:
    """The services of the application that serves this request."""
    return cast("Services", request.app.state.services)


def state(scope: Any) -> dict[str, Any]:
    """What the middlewares know of this request: `request_id`, `address`, `visitor`, `audit`, `code`."""
    return cast("dict[str, Any]", scope.setdefault(_STATE, {}))
