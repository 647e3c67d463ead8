"""Creates a gateway from its settings, checks that it can serve, and ends the sessions of a person.

The factory opens every file that the settings name, so that a bad file is reported when the gateway starts.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from uuid import uuid4

from onym.ai.gateway.audit import AuditLog
from onym.ai.telemetry import resolve_telemetry
from onym.errors import ConfigError, OnymError, UsageError
from onym.server.clients import SharedRates
from onym.server.gateway.app import Gateway
from onym.server.gateway.approval_pages import ApprovalHandler
from onym.server.gateway.dependencies import Dependencies, ResultStore, hash_person, make_limiter
from onym.server.gateway.handlers import ExchangeHandler, PageHandler, UpstreamRelay
from onym.server.gateway.people import PeopleHandler
from onym.server.gateway.tasks import TaskHandler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from onym.accounts.oidc import OIDCProvider
    from onym.ai.client import AsyncAIClient
    from onym.ai.endpoint.signing import FleetKeys
    from onym.ai.gateway.approvals import ApprovalDesk
    from onym.ai.gateway.grants import GrantServer
    from onym.ai.telemetry import Telemetry
    from onym.net.connections import AddressResolver
    from onym.server.gateway.delegation import Delegation
    from onym.server.gateway.dependencies import ProgramAuthenticator
    from onym.server.gateway.sessions import PersonSession, PersonSessions
    from onym.server.gateway.settings import GatewaySettings
    from onym.sign.keys import Signer
    from onym.sign.sealing import SealingSecrets
    from onym.store.shared import SharedStore

Closer: TypeAlias = Callable[[], Awaitable[None]]

_HTTPS: Final = 443
#: codes of errors about unusable files -> the hint for the operator; None keeps the error's hint
_FILE_ERROR_HINTS: Final[Mapping[str, str | None]] = MappingProxyType(
    {
        "aiip.unavailable": None,
        "sign.bad-key": None,
        "sign.malformed": None,
        "usage.tls": "Set ca_files or --ca to a file of PEM certificates.",
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
    from onym.ai.replay import MemoryReplays, open_replays
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
    replays = open_replays(settings.replays, limit)
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
        if not isinstance(replays, MemoryReplays):
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
    from onym.ai.records import Namespace
    from onym.ai.settings import MemoryPins, PinFile, ResolverSettings

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
        clock=time.time if clock is _get_utc_now else lambda: clock().timestamp(),
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
    signer, jwks, close_keys = _open_signing_keys(settings, now)
    key = settings.audit_key
    audit_key = secrets.token_bytes(32) if key is None else key.reveal().encode("utf-8")
    telemetry = resolve_telemetry(telemetry, path_key=audit_key)
    if upstream is None:
        upstream, close_upstream = open_upstream(settings, resolver, now, telemetry)
    else:
        close_upstream = upstream.close
    providers, sessions, secrets_of_fleet = _open_sign_in(settings, signer, now, monotonic)
    parts = Dependencies(
        settings=settings,
        upstream=upstream,
        signer=signer,
        jwks=jwks,
        journal=journal,
        audit_key=audit_key,
        rates=SharedRates(
            settings.rates,
            monotonic,
            url=settings.rate_store,
            share=1 / (settings.workers * settings.machines),
            count_fallback=_do_nothing if telemetry is None else telemetry.count_local_rate,
        ),
        slots=make_limiter(
            total=settings.concurrency,
            client=settings.client_concurrency,
            authority=settings.authority_concurrency,
        ),
        results=ResultStore(monotonic),
        clock=now,
        providers=providers,
        sessions=sessions,
        programs=_make_authenticator(settings, sessions, secrets_of_fleet, now, monotonic),
    )

    async def close() -> None:
        await close_upstream()
        if parts.programs is not None:
            await parts.programs.close()
        for provider in providers.values():
            await provider.close()
        if sessions is not None:
            await sessions.store.close()
        if journal is not None:
            journal.close()
        await parts.rates.close()
        close_keys()

    delegation = _make_delegation(parts)
    relay = UpstreamRelay(parts, monotonic, delegation)
    desk = None
    if sessions is not None:
        desk = _open_approvals(settings, sessions.store, secrets_of_fleet, signer, now)
    approvals = ApprovalHandler(parts, relay, desk)
    if sessions is not None:
        sessions.add_listener(approvals.withdraw_ended)
        sessions.add_person_listener(approvals.withdraw_person)
    site = PageHandler(parts, relay, approvals.ask_for_call)
    exchanges = ExchangeHandler(parts, relay, site, approvals)
    tasks, people = TaskHandler(parts, relay), PeopleHandler(parts)
    consents = None
    if delegation is not None and parts.programs is not None:
        from onym.server.gateway.consents import ConsentHandler

        consents = ConsentHandler(parts, delegation.consents)
    return Gateway(parts, site, exchanges, tasks, people, delegation, approvals, consents, close, telemetry)


def _open_approvals(
    settings: GatewaySettings,
    store: SharedStore,
    sealing: SealingSecrets,
    signer: Callable[[], Signer],
    clock: Callable[[], datetime],
) -> ApprovalDesk:
    from onym.ai.gateway.approvals import ApprovalDesk, ApproverIdentity
    from onym.uri.secret import Secret

    pseudonyms = settings.pseudonym_key or Secret(secrets.token_urlsafe(32))
    identity = ApproverIdentity(issuer=settings.base_url, signer=signer, pseudonyms=pseudonyms)
    return ApprovalDesk(store, sealing, identity, lambda: clock().timestamp())


def _make_authenticator(
    settings: GatewaySettings,
    sessions: PersonSessions | None,
    sealing: SealingSecrets,
    clock: Callable[[], datetime],
    monotonic: Callable[[], float],
) -> ProgramAuthenticator | None:
    """Return what verifies the tokens of programs, or None if the gateway takes none."""
    if sessions is None or not settings.programs:
        return None
    from onym.accounts.oidc import make_provider_network
    from onym.ai.endpoint.oauth import JWTAuthorization
    from onym.server.gateway.dependencies import ProgramAuthenticator

    providers = {provider.id: provider for provider in settings.providers}
    rows = [(providers[table.provider], table) for table in settings.programs]
    return ProgramAuthenticator(
        settings.base_url,
        [
            JWTAuthorization(
                provider.issuer,
                settings.base_url,
                scopes=table.scopes,
                dpop=table.dpop,
                mtls=table.mtls,
                # all processes of the gateway refuse a proof that one of them has seen
                store=sessions.store,
                secrets=sealing,
                network=make_provider_network(provider),
                clock=lambda: clock().timestamp(),
                monotonic=monotonic,
            )
            for provider, table in rows
        ],
        {provider.issuer: frozenset(table.scopes) for provider, table in rows},
    )


def _make_delegation(parts: Dependencies) -> Delegation | None:
    """Return what decides for whom calls are sent, or None if nobody can sign in."""
    settings, sessions = parts.settings, parts.sessions
    if sessions is None:
        return None
    from onym.ai.gateway.grants import GrantBroker, GrantServer
    from onym.ai.gateway.permissions import ConsentStore
    from onym.ai.oauth_metadata import Registration
    from onym.server.gateway.delegation import Delegation

    issuers = {provider.id: provider.issuer for provider in settings.providers}
    client_key = _get_client_key(settings, parts.signer)
    broker = GrantBroker(
        [
            GrantServer(
                registration=Registration(
                    issuer=table.issuer,
                    client_id=table.client_id,
                    secret=table.client_secret,
                    key=client_key if table.client_secret is None else None,
                    origins=table.origins,
                    impersonation=table.impersonation,
                ),
                assertions_of=frozenset(issuers[name] for name in table.assertions_of),
                tokens_of=frozenset(issuers[name] for name in table.tokens_of),
                connect=table.connect,
                service=table.service,
                scopes=frozenset(table.scopes) if table.scopes else None,
                authorities=frozenset(table.authorities) if table.authorities else None,
            )
            for table in settings.authorization_servers
        ],
        [
            Registration(
                issuer=provider.issuer,
                client_id=provider.client_id,
                secret=provider.client_secret,
                key=client_key if provider.client_secret is None else None,
            )
            for provider in settings.providers
        ],
        parts.upstream.session.settings,
    )

    async def end_sessions(ended: Sequence[PersonSession]) -> None:
        for session in ended:
            broker.end_subject(session.digest)

    sessions.add_listener(end_sessions)
    return Delegation(parts=parts, broker=broker, consents=ConsentStore(sessions.store))


def _open_sign_in(
    settings: GatewaySettings,
    signer: Callable[[], Signer],
    clock: Callable[[], datetime],
    monotonic: Callable[[], float],
) -> tuple[dict[str, OIDCProvider], PersonSessions | None, SealingSecrets]:
    """Return the providers, the sessions of people (None without a provider), and the secrets of seals."""
    from onym.sign.sealing import TemporarySecrets

    if not settings.providers:
        return {}, None, TemporarySecrets()
    from onym.accounts.oidc import OIDCProvider
    from onym.server.gateway.sessions import PersonSessions
    from onym.sign.sealing import FleetSecrets
    from onym.store import open_shared_store

    secrets = TemporarySecrets() if settings.secrets is None else FleetSecrets(settings.secrets)
    with _raise_config_error("secrets"):
        secrets.list_secrets()  # report a bad folder at the start
    sessions = PersonSessions(
        open_shared_store(settings.store, clock=lambda: clock().timestamp()),
        secrets,
        clock,
        idle=settings.session_idle_seconds,
        life=settings.session_seconds,
    )
    client_key = _get_client_key(settings, signer)
    providers = {
        issuer.id: OIDCProvider(
            issuer, f"{settings.base_url}/auth/callback/{issuer.id}", monotonic, signer=client_key
        )
        for issuer in settings.providers
    }
    return providers, sessions, secrets


def _get_client_key(settings: GatewaySettings, signer: Callable[[], Signer]) -> Callable[[], Signer] | None:
    """Return what signs the gateway's authentication at providers and authorization servers, or None.

    They fetch the key from `/.well-known/jwks.json`, so a temporary one of a loopback gateway is no use.
    """
    return None if settings.keys is None else signer


def _open_signing_keys(
    settings: GatewaySettings, clock: Callable[[], datetime]
) -> tuple[Callable[[], Signer], Callable[[bool], bytes], Callable[[], object]]:
    """Return the signer of the gateway's receipts, its key sets (current, or with history), and the end."""
    from onym.sign.keystore import KeyStore  # late: cryptography is heavy

    if settings.keys is not None:
        store: KeyStore | FleetKeys = KeyStore(Path(settings.keys))
        end: Callable[[], object] = _do_nothing
        if settings.fleet is not None:
            from onym.ai.endpoint.signing import FleetKeys

            store = FleetKeys(settings.keys, settings.fleet, clock=lambda: clock().timestamp())
            end = store.close
        store.signer(clock().timestamp())  # report a bad key store at the start

        def published(history: bool) -> bytes:
            at = clock().timestamp()
            return store.history(at) if history else store.jwks(at)

        # loaded for every receipt: a revoked key must not sign
        return lambda: store.signer(clock().timestamp()), published, end
    from msgspec import json

    from onym.sign.keys import SigningKey

    key = SigningKey.generate("Ed25519").with_thumbprint()
    octets = json.encode({"keys": [key.public()]})
    return lambda: key, lambda _history: octets, _do_nothing


def _do_nothing() -> None:
    """Take the place of a function that is not needed: keys without a database, or no telemetry."""


def _get_utc_now() -> datetime:
    return datetime.now(UTC)


#: a setting that is missing, what that means, and what to do
_GAPS: Final = (
    ("keys", "receipts are signed with a temporary key, which nobody can verify later",
     "Create a key with onym ai keys new DIR, and set keys = DIR."),
    ("audit", "no audit log is written", "Set audit to a file."),
    ("pins", "what authorities promise is forgotten when the gateway stops", "Set pins to a file."),
    ("replays", "receipts can be replayed to the gateway after a restart",
     "Set replays to a file, or to the URL of a shared store."),
)  # fmt: skip
_PEOPLE_GAPS: Final = (
    ("store", "people have to sign in again when the gateway stops",
     "Set store to a file, or to the URL of a database that all processes share."),
    ("secrets", "sessions cannot be opened after a restart, or by another process",
     "Run onym ai gateway secrets rotate DIR, and set secrets = DIR."),
    ("pseudonym_key", "authorities see a person's approvals under another name after a restart",
     "Set pseudonym_key to a random text."),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPart:
    """One part of a gateway, and whether it can be used.

    `code` is that of the error of a failed part; `hint` says what to do.
    """

    name: str
    state: Literal["ok", "warning", "failed"]
    message: str
    code: str | None = None
    hint: str | None = None


async def check_gateway(settings: GatewaySettings) -> list[CheckedPart]:
    """Check that a gateway with these settings can serve: its files, keys, stores, and servers for people.

    It sends no ai request, and changes nothing but files that are created when they are missing.
    """
    try:
        gateway = create_gateway(settings)
    except OnymError as error:
        return [_make_failure("start", error)]
    try:
        parts = [part async for part in _iter_parts(gateway)]
    finally:
        await gateway.close()
    return [*parts, *_list_gaps(settings)]


async def _iter_parts(gateway: Gateway) -> AsyncIterator[CheckedPart]:
    parts = gateway.parts
    yield await _check("keys", "the gateway can sign", partial(_sign, parts))
    if parts.sessions is not None:
        yield await _check(
            "store", "the store of sessions answers, and its time is ours", parts.sessions.check
        )
    for provider in parts.providers.values():
        issuer = provider.issuer
        yield await _check(
            f"provider {issuer.id}", f"{issuer.issuer} answers", partial(_reach_provider, provider)
        )
    delegation = gateway.delegation
    if delegation is not None:
        for server in delegation.broker.servers:
            fetch = partial(_reach_server, delegation, server)
            yield await _check(f"authorization server {server.issuer}", "its metadata can be used", fetch)


async def _sign(parts: Dependencies) -> None:
    parts.signer()


async def _reach_provider(provider: OIDCProvider) -> None:
    await provider.get_metadata()
    await provider.get_keys()


async def _reach_server(delegation: Delegation, server: GrantServer) -> None:
    await delegation.parts.upstream.run(delegation.broker.make_client(server).fetch_server())


async def _check(name: str, message: str, work: Callable[[], Awaitable[None]]) -> CheckedPart:
    try:
        await work()
    except OnymError as error:
        return _make_failure(name, error)
    return CheckedPart(name=name, state="ok", message=message)


def _make_failure(name: str, error: OnymError) -> CheckedPart:
    return CheckedPart(name=name, state="failed", message=error.message, code=error.code, hint=error.hint)


def _list_gaps(settings: GatewaySettings) -> Iterator[CheckedPart]:
    for name, message, hint in (*_GAPS, *(_PEOPLE_GAPS if settings.providers else ())):
        if getattr(settings, name) is None:
            yield CheckedPart(name=name, state="warning", message=message, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSessions:
    """The sessions of one person that were ended. `subject` is the provider's name of the person."""

    provider: str
    subject: str
    sessions: int


async def end_person_sessions(settings: GatewaySettings, user: str) -> list[EndedSessions]:
    """End all sessions of a person, with their tokens and connections, and withdraw the calls that wait.

    `user` is a provider's ID, a space, and the person's subject or verified e-mail address there. Running
    gateways with the same store see it at the next request. A sign-in that is in progress does not open a
    session. Raises UsageError for another text, ConfigError if the sessions of these settings are not shared,
    and StoreError.
    """
    identifier, _, name = user.partition(" ")
    provider = next((table for table in settings.providers if table.id == identifier), None)
    if provider is None or not name.strip():
        known = next((table.id for table in settings.providers), "login")
        raise UsageError(
            f"{user!r} does not name a person",
            code="usage.command-line",
            hint=f'Write a provider\'s ID and a subject or address, such as "{known} ann@example.org".',
        )
    if settings.store is None:
        raise ConfigError(
            "store is missing: the sessions are in the memory of the running gateway",
            code="config.missing-setting",
            hint="Restart the gateway to end all sessions, and set store.",
        )
    async with _open_gateway(settings) as gateway:
        sessions = gateway.parts.sessions
        assert sessions is not None  # noqa: S101 - there are providers
        subjects = await sessions.find_subjects(provider.issuer, name.strip())
        ended = []
        for subject in subjects:
            count = await sessions.end_by_operator(provider.issuer, subject)
            ended.append(EndedSessions(provider=provider.id, subject=subject, sessions=count))
            _record_end(gateway, provider.id, provider.issuer, subject, count)
    return ended


@asynccontextmanager
async def _open_gateway(settings: GatewaySettings) -> AsyncIterator[Gateway]:
    gateway = create_gateway(settings)
    try:
        yield gateway
    finally:
        await gateway.close()


def _record_end(gateway: Gateway, provider: str, issuer: str, subject: str, ended: int) -> None:
    parts = gateway.parts
    if parts.journal is None:
        return
    line = {
        "event": "logout",
        "id": str(uuid4()),
        "provider": provider,
        "by": "operator",
        "ended": ended,
        "person": hash_person(parts.audit_key, issuer, subject),
    }
    parts.journal.append(line, at=parts.clock())
