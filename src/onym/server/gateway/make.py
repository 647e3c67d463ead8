"""A gateway from its settings: the key that signs, the files that it keeps, and all that they share."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from onym.ai._observe import wanted
from onym.errors import ConfigError
from onym.server.gateway._upstream import open_upstream
from onym.server.gateway.app import Gateway
from onym.server.gateway.exchanges import Exchanges
from onym.server.gateway.parts import Parts
from onym.server.gateway.relay import Relay
from onym.server.gateway.routes import Routes
from onym.server.gateway.shelf import Shelf
from onym.server.gateway.site import Site
from onym.server.gateway.slots import Slots
from onym.server.security.rates import Rates

if TYPE_CHECKING:
    from onym.ai.gateway.journal import Journal
    from onym.ai.telemetry import Telemetry
    from onym.net.resolve import Resolver
    from onym.server.gateway.parts import Upstream
    from onym.server.gateway.settings import GatewaySettings
    from onym.sign.keys import Signer

__all__ = ["create_gateway"]


def create_gateway(
    settings: GatewaySettings,
    *,
    upstream: Upstream | None = None,
    resolver: Resolver | None = None,
    clock: Callable[[], datetime] | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    telemetry: Telemetry | None = None,
) -> Gateway:
    """The gateway of these settings, as an ASGI app.

    `upstream` asks the authorities, a client of its own where left out; `resolver` looks names up (the
    system's by default), `clock` gives the time in UTC, `monotonic` seconds that only grow. `telemetry`
    reports what is asked; without it only `ONYM_TELEMETRY=1` does, with paths hashed as in the audit log.
    Raises ConfigError for files that cannot be used.
    """
    now = clock or _now
    journal = None if settings.audit is None else _journal(settings.audit)
    signer, jwks = _keys(settings, now)
    given = settings.audit_key
    audit_key = secrets.token_bytes(32) if given is None else given.reveal().encode("utf-8")
    telemetry = wanted(telemetry, path_key=audit_key)
    client = upstream or open_upstream(settings, resolver, now, telemetry)
    parts = Parts(
        settings=settings,
        upstream=client,
        signer=signer,
        jwks=jwks,
        journal=journal,
        audit_key=audit_key,
        rates=Rates(cast("Any", settings.rates), monotonic),
        slots=Slots(
            total=settings.concurrency,
            client=settings.client_concurrency,
            authority=settings.authority_concurrency,
        ),
        shelf=Shelf(monotonic),
        clock=now,
    )

    async def close() -> None:
        await client.close()
        if journal is not None:
            journal.close()

    relay = Relay(parts, monotonic)
    site = Site(parts, relay)
    routes = Routes(parts, site, Exchanges(parts, relay, site))
    return Gateway(parts, routes, (close,), telemetry)


def _journal(path: str) -> Journal:
    try:
        from onym.ai.gateway.journal import Journal  # late: not every system can lock a file so
    except ModuleNotFoundError:
        raise ConfigError(
            "an audit log needs a system with POSIX file locks",
            code="audit.unusable",
            hint="run the gateway on Linux or macOS, or leave audit out",
        ) from None
    return Journal(path)


def _keys(
    settings: GatewaySettings, clock: Callable[[], datetime]
) -> tuple[Callable[[], Signer], Callable[[bool], bytes]]:
    """Who signs the gateway's receipts, and its key sets (in force, or with the history)."""
    from onym.sign.keystore import KeyStore  # late: cryptography is heavy

    if settings.keys is not None:
        store = KeyStore(Path(settings.keys))
        store.signer(clock().timestamp())  # what is wrong with it is said at the start

        def published(history: bool) -> bytes:
            at = clock().timestamp()
            return store.history(at) if history else store.jwks(at)

        # asked each time: a key that was revoked must sign nothing more
        return lambda: store.signer(clock().timestamp()), published
    from msgspec import json

    from onym.sign.keys import SigningKey

    key = SigningKey.generate("Ed25519").with_thumbprint()
    octets = json.encode({"keys": [key.public()]})
    return lambda: key, lambda _history: octets


def _now() -> datetime:
    return datetime.now(UTC)
