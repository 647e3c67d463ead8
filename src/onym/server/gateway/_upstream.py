"""Who asks the authorities for a gateway: a client with its transport, its pins and its replay store.

Every file that the settings name is looked at here: what is wrong with one is said at the start, to the
operator, and not with each request, to a caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from onym.errors import ConfigError, OnymError

if TYPE_CHECKING:
    from datetime import datetime

    from onym.ai.telemetry import Telemetry
    from onym.net.limits import TLSConfig
    from onym.net.records import RecordResolver
    from onym.net.resolve import Resolver
    from onym.server.gateway.parts import Upstream
    from onym.server.gateway.settings import GatewaySettings

__all__ = ["open_upstream"]

_HTTPS: Final = 443
#: codes that say of a file that it cannot be used -> the hint for an operator, where the error's own is not
_UNFIT: Final[Mapping[str, str | None]] = MappingProxyType(
    {
        "aiip.unavailable": None,
        "sign.bad-key": None,
        "sign.malformed": None,
        "usage.tls": "a file of PEM certificates; ca_files and --ca-file name it",
    }
)


def open_upstream(
    settings: GatewaySettings,
    resolver: Resolver | None,
    clock: Callable[[], datetime],
    telemetry: Telemetry | None,
) -> Upstream:
    """The client of these settings. `resolver` looks names up, `clock` gives the time in UTC.

    Raises ConfigError for a file that cannot be used, SignatureError and SnapshotError for a registry file
    that does not hold.
    """
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
    tls = TLSConfig(ca_files=settings.ca_files, minimum="1.3")
    _check_authorities(tls)
    transport = AsyncTransport(
        policy,
        resolver=resolver,
        limits=NetLimits(body=settings.answer_limit),
        tls=tls,
        records=_records(settings),
    )
    most = settings.replay_limit
    replays = MemoryReplays(most) if settings.replays is None else ReplayFile(settings.replays, most)
    client = AsyncAIClient(
        _resolver_settings(settings, clock),
        transport=transport,
        origin=settings.base_url,
        replays=replays,
        timeout=float(settings.timeout),
        telemetry=telemetry,
    )
    return _Client(client, transport, replays)


@contextmanager
def _at_start(setting: str) -> Iterator[None]:
    """What says of a file that it cannot be used is about this setting: a ConfigError."""
    try:
        yield
    except OnymError as error:
        if error.code not in _UNFIT:
            raise
        raise ConfigError(
            f"{setting}: {error.message}", code="config.bad-file", hint=_UNFIT[error.code] or error.hint
        ) from error


def _check_authorities(tls: TLSConfig) -> None:
    from onym.net._trust import make_context

    with _at_start("ca_files"):
        make_context(tls)


def _records(settings: GatewaySettings) -> RecordResolver | None:
    if not settings.dns:
        return None
    from onym.net.records import RecordResolver

    return RecordResolver(settings.nameservers or None, settings.nameserver_port)


class _Client:
    """The client with its transport and its replay store, which are closed with it."""

    def __init__(self, client: Any, transport: Any, replays: Any) -> None:
        self._transport = transport
        self._replays = replays
        self.resolve = client.resolve
        self.exchange = client.exchange
        self.exchange_stream = client.exchange_stream

    async def close(self) -> None:
        """Close the connections, and the file."""
        await self._transport.close()
        end = getattr(self._replays, "close", None)
        if end is not None:
            end()


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
        with _at_start("pins"):
            pins.look()
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

    with _at_start("namespaces"):
        return [
            SignedNamespaces.load(each.file, key=each.keys, state=each.state) for each in settings.namespaces
        ]
