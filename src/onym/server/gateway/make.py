"""A gateway from its settings: the client that asks, the key that signs, the files that it keeps."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from onym.ai._observe import wanted
from onym.ai.gateway.journal import Journal
from onym.server.gateway.app import Gateway
from onym.server.gateway.parts import Parts
from onym.server.gateway.relay import Relay
from onym.server.gateway.shelf import Shelf
from onym.server.gateway.site import Site
from onym.server.gateway.slots import Slots
from onym.server.security.rates import Rates

if TYPE_CHECKING:
    from onym.ai.telemetry import Telemetry
    from onym.net.records import RecordResolver
    from onym.net.resolve import Resolver
    from onym.server.gateway.parts import Upstream
    from onym.server.gateway.settings import GatewaySettings
    from onym.sign.keys import Signer

__all__ = ["create_gateway"]

_HTTPS: Final = 443


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
    journal = None if settings.audit is None else Journal(settings.audit)
    signer, jwks = _keys(settings, now)
    given = settings.audit_key
    audit_key = secrets.token_bytes(32) if given is None else given.reveal().encode("utf-8")
    telemetry = wanted(telemetry, path_key=audit_key)
    client = upstream or _client(settings, resolver, now, telemetry)
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
    return Gateway(parts, relay, Site(parts, relay), (close,), telemetry)


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


def _client(
    settings: GatewaySettings,
    resolver: Resolver | None,
    clock: Callable[[], datetime],
    telemetry: Telemetry | None,
) -> Upstream:
    from onym.ai.client import AsyncAIClient
    from onym.ai.replay import MemoryReplays, ReplayFile
    from onym.net.limits import NetLimits, TLSConfig
    from onym.net.policy import Policy
    from onym.net.transport import AsyncTransport

    policy = Policy.untrusted().replace(
        # trials take whatever port is free
        ports=None if settings.network == "local" else frozenset({_HTTPS, *settings.ports}),
        allow_networks=(
            *settings.networks,
            *(("127.0.0.0/8", "::1/128") if settings.network == "local" else ()),
        ),
    )
    transport = AsyncTransport(
        policy,
        resolver=resolver,
        limits=NetLimits(body=settings.answer_limit),
        tls=TLSConfig(ca_files=settings.ca_files, minimum="1.3"),
        records=_records(settings),
    )
    replays = MemoryReplays() if settings.replays is None else ReplayFile(settings.replays)
    client = AsyncAIClient(
        _resolver_settings(settings, clock),
        transport=transport,
        origin=settings.base_url,
        replays=replays,
        timeout=float(settings.timeout),
        telemetry=telemetry,
    )
    return _Client(client, transport)


def _records(settings: GatewaySettings) -> RecordResolver | None:
    if not settings.dns:
        return None
    from onym.net.records import RecordResolver

    return RecordResolver(settings.nameservers or None, settings.nameserver_port)


class _Client:
    """The client with its transport, which is closed with it."""

    def __init__(self, client: Any, transport: Any) -> None:
        self._transport = transport
        self.resolve = client.resolve
        self.exchange = client.exchange
        self.exchange_stream = client.exchange_stream

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()


def _resolver_settings(settings: GatewaySettings, clock: Callable[[], datetime]) -> Any:
    from onym.ai.discovery.pins import MemoryPins
    from onym.ai.records import Namespace
    from onym.ai.settings import ResolverSettings

    contexts = {
        each.path: Namespace(label="_", anchor=each.anchor, keys=each.keys) for each in settings.contexts
    }
    pins: Any = MemoryPins()
    if settings.pins is not None:
        from onym.ai.discovery.pins import PinFile

        pins = PinFile(settings.pins)
    return ResolverSettings(
        namespaces=tuple(_namespaces(settings)),
        contexts=contexts,
        pins=pins,
        dns=settings.dns,
        timeout=float(settings.timeout),
        clock=lambda: clock().timestamp(),
    )


def _namespaces(settings: GatewaySettings) -> list[Any]:
    if not settings.namespaces:
        return []
    from onym.registry.resolve import SignedNamespaces  # late: few gateways have a registry

    return [SignedNamespaces.load(each.file, key=each.keys, state=each.state) for each in settings.namespaces]


def _now() -> datetime:
    return datetime.now(UTC)
