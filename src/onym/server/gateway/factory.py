"""Creates a gateway from its settings: signing keys, files, and the client that calls the authorities.

The factory opens every file that the settings name, so that a bad file is reported when the gateway starts.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym.ai.gateway.audit import AuditLog
from onym.ai.telemetry import resolve_telemetry
from onym.errors import ConfigError, OnymError
from onym.server.gateway.app import Gateway
from onym.server.gateway.dependencies import Dependencies, ResultStore, make_limiter
from onym.server.gateway.handlers import ExchangeHandler, PageHandler, UpstreamRelay
from onym.server.security.clients import TokenBuckets

if TYPE_CHECKING:
    from onym.ai.client import AsyncAIClient
    from onym.ai.telemetry import Telemetry
    from onym.net.connections import AddressResolver
    from onym.server.gateway.settings import GatewaySettings
    from onym.sign.keys import Signer

Closer: TypeAlias = Callable[[], Awaitable[None]]

_HTTPS: Final = 443
#: codes of errors about unusable files -> the hint for the operator; None keeps the error's hint
_FILE_ERROR_HINTS: Final[Mapping[str, str | None]] = MappingProxyType(
    {
        "aiip.unavailable": None,
        "sign.bad-key": None,
        "sign.malformed": None,
        "usage.tls": "Set ca_files or --ca-file to a file of PEM certificates.",
    }
)


def open_upstream(
    settings: GatewaySettings,
    resolver: AddressResolver | None,
    clock: Callable[[], datetime],
    telemetry: Telemetry | None,
) -> tuple[AsyncAIClient, Closer]:
    """Return the client of these settings and the function that closes its connections and replay file.

    `resolver` resolves host names, `clock` returns the time in UTC. Raises ConfigError for an unusable file,
    SignatureError and SnapshotError for an invalid registry file.
    """
    from onym.ai.client import AsyncAIClient
    from onym.ai.replay import MemoryReplays, ReplayFile
    from onym.net.config import NetConfig
    from onym.net.connections import make_tls_context
    from onym.net.limits import NetLimits, TLSConfig
    from onym.net.policy import Policy
    from onym.net.records import RecordResolver

    policy = Policy.untrusted().replace(
        # tests on this computer use any free port
        ports=None if settings.network == "local" else frozenset({_HTTPS, *settings.ports}),
        allow_networks=(
            *settings.networks,
            *(("127.0.0.0/8", "::1/128") if settings.network == "local" else ()),
        ),
    )
    tls = TLSConfig(ca_files=settings.ca_files, minimum="1.3")
    with _raise_config_error("ca_files"):
        make_tls_context(tls)
    records = RecordResolver(settings.nameservers or None, settings.nameserver_port)
    network = NetConfig(
        policy=policy,
        resolver=resolver,
        limits=NetLimits(body=settings.answer_limit),
        tls=tls,
        records=records if settings.dns else None,
    )
    limit = settings.replay_limit
    replays = MemoryReplays(limit) if settings.replays is None else ReplayFile(settings.replays, limit)
    client = AsyncAIClient(
        _build_resolver_settings(settings, clock),
        network=network,
        origin=settings.base_url,
        replays=replays,
        timeout=float(settings.timeout),
        telemetry=telemetry,
    )

    async def close() -> None:
        await client.close()
        if isinstance(replays, ReplayFile):
            replays.close()

    return client, close


@contextmanager
def _raise_config_error(setting: str) -> Iterator[None]:
    """Replace an error about an unusable file by a ConfigError that names the setting."""
    try:
        yield
    except OnymError as error:
        if error.code not in _FILE_ERROR_HINTS:
            raise
        raise ConfigError(
            f"{setting}: {error.message}",
            code="config.bad-file",
            hint=_FILE_ERROR_HINTS[error.code] or error.hint,
        ) from error


def _build_resolver_settings(settings: GatewaySettings, clock: Callable[[], datetime]) -> Any:
    from onym.ai.discovery.pins import MemoryPins, PinFile
    from onym.ai.records import Namespace
    from onym.ai.settings import ResolverSettings

    contexts = {
        context.path: Namespace(label="_", anchor=context.anchor, keys=context.keys)
        for context in settings.contexts
    }
    pins: Any = MemoryPins()
    if settings.pins is not None:
        pins = PinFile(settings.pins)
        with _raise_config_error("pins"):
            pins.require_usable()
    return ResolverSettings(
        namespaces=tuple(_load_namespaces(settings)),
        contexts=contexts,
        pins=pins,
        dns=settings.dns,
        timeout=float(settings.timeout),
        clock=lambda: clock().timestamp(),
    )


def _load_namespaces(settings: GatewaySettings) -> list[Any]:
    if not settings.namespaces:
        return []
    from onym.registry.signed_namespaces import SignedNamespaces  # late: few gateways have a registry

    with _raise_config_error("namespaces"):
        return [
            SignedNamespaces.load(namespace.file, key=namespace.keys, state=namespace.state)
            for namespace in settings.namespaces
        ]


def create_gateway(
    settings: GatewaySettings,
    *,
    upstream: AsyncAIClient | None = None,
    resolver: AddressResolver | None = None,
    clock: Callable[[], datetime] | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    telemetry: Telemetry | None = None,
) -> Gateway:
    """Create the gateway of these settings, an ASGI app.

    `upstream` calls the authorities (default: a new client), `resolver` resolves host names (default: the
    system's), `clock` returns the time in UTC, `monotonic` seconds. `telemetry` reports requests; without
    it only `ONYM_TELEMETRY=1` does, with paths hashed as in the audit log. Raises ConfigError for unusable
    files.
    """
    now = clock or _get_utc_now
    journal = None if settings.audit is None else AuditLog(settings.audit)
    signer, jwks = _open_signing_keys(settings, now)
    key = settings.audit_key
    audit_key = secrets.token_bytes(32) if key is None else key.reveal().encode("utf-8")
    telemetry = resolve_telemetry(telemetry, path_key=audit_key)
    if upstream is None:
        upstream, close_upstream = open_upstream(settings, resolver, now, telemetry)
    else:
        close_upstream = upstream.close
    parts = Dependencies(
        settings=settings,
        upstream=upstream,
        signer=signer,
        jwks=jwks,
        journal=journal,
        audit_key=audit_key,
        rates=TokenBuckets(settings.rates, monotonic),
        slots=make_limiter(
            total=settings.concurrency,
            client=settings.client_concurrency,
            authority=settings.authority_concurrency,
        ),
        results=ResultStore(monotonic),
        clock=now,
    )

    async def close() -> None:
        await close_upstream()
        if journal is not None:
            journal.close()

    relay = UpstreamRelay(parts, monotonic)
    site = PageHandler(parts, relay)
    return Gateway(parts, site, ExchangeHandler(parts, relay, site), close, telemetry)


def _open_signing_keys(
    settings: GatewaySettings, clock: Callable[[], datetime]
) -> tuple[Callable[[], Signer], Callable[[bool], bytes]]:
    """Return the signer of the gateway's receipts, and its key sets (current, or with history)."""
    from onym.sign.keystore import KeyStore  # late: cryptography is heavy

    if settings.keys is not None:
        store = KeyStore(Path(settings.keys))
        store.signer(clock().timestamp())  # report a bad key store at the start

        def published(history: bool) -> bytes:
            at = clock().timestamp()
            return store.history(at) if history else store.jwks(at)

        # loaded for every receipt: a revoked key must not sign
        return lambda: store.signer(clock().timestamp()), published
    from msgspec import json

    from onym.sign.keys import SigningKey

    key = SigningKey.generate("Ed25519").with_thumbprint()
    octets = json.encode({"keys": [key.public()]})
    return lambda: key, lambda _history: octets


def _get_utc_now() -> datetime:
    return datetime.now(UTC)
