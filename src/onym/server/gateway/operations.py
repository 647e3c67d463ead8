"""Operating a gateway, apart from serving: check that it can serve, and end the sessions of a person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

from onym.errors import ConfigError, OnymError, UsageError
from onym.server.gateway.dependencies import hash_person
from onym.server.gateway.factory import create_gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from onym.accounts.oidc import OIDCProvider
    from onym.ai.gateway.grants import GrantServer
    from onym.server.gateway.app import Gateway
    from onym.server.gateway.delegation import Delegation
    from onym.server.gateway.dependencies import Dependencies
    from onym.server.gateway.settings import GatewaySettings

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
