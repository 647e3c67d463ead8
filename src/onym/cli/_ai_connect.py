"""From a command line to a client for ai:// names: whom to trust, where to go, who is asking."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from onym.cli._input import key_file
from onym.cli._output import Session, Subject
from onym.errors import UsageError

if TYPE_CHECKING:
    from onym.ai.client import AIClient
    from onym.ai.records import Namespaces, Resolution
    from onym.ai.settings import ResolverSettings
    from onym.net.transport import Transport
    from onym.uri.ai import AIURI
    from onym.uri.secret import Secret

__all__ = ["Options", "ai_options", "connected", "read_uri", "resolver_settings", "transport", "uri_argument"]

_F = TypeVar("_F", bound=Callable[..., Any])

uri_argument = click.argument("uri", metavar="URI")


class Options(TypedDict):
    """The options that every command with an authority has."""

    policy: str
    ca: str | None
    registry: str | None
    registry_key: str | None
    dns: bool
    resolver: str | None
    timeout: float


def ai_options(function: _F) -> _F:
    """`--policy`, `--ca`, `--registry`, `--registry-key`, `--no-dns`, `--resolver` and `--timeout`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option(
        "--policy",
        type=click.Choice(["trusted", "local", "untrusted"]),
        default="local",
        show_default=True,
        help="Where the name may lead: local allows this machine, untrusted port 443 alone.",
    ),
    click.option(
        "--ca",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="A certificate authority (PEM) to trust besides the system's.",
    ),
    click.option(
        "--registry",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="A signed registry file, for names of one label (ai://bank/...).",
    ),
    click.option(
        "--registry-key",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="The key that signs it: its public JWK or JWK set.",
    ),
    click.option("--dns/--no-dns", default=True, help="Ask DNS for SRV and TXT records too (default)."),
    click.option(
        "--resolver",
        metavar="ADDRESS[:PORT]",
        help="A name server to ask instead of the system's; on loopback it may vouch for DNSSEC.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="For each request.",
    ),
)


def read_uri(session: Session, text: str) -> AIURI:
    """What a person typed, as an ai URI; Unicode in it is converted, and we say so. Raises AIURIError."""
    from onym.uri.ai_typed import from_typed

    session.subject = Subject(text, text, typed=True)
    typed = from_typed(text)
    if str(typed.uri) != text.strip():
        session.note(f"read as {typed.uri}")
    for each in typed.warnings:
        session.note(each.message, kind="warning")
    return typed.uri


def resolver_settings(options: Options) -> ResolverSettings:
    """How authorities are found: registry file, DNS. Pins are kept in the user's state directory."""
    from onym.ai._observe import wanted
    from onym.ai.discovery.pins import PinFile
    from onym.ai.settings import ResolverSettings

    namespaces: tuple[Namespaces, ...] = ()
    if options["registry"] is not None:
        from onym.registry.resolve import SignedNamespaces

        if options["registry_key"] is None:
            raise UsageError("a registry file needs the key that signs it", hint="--registry-key FILE")
        key = Path(options["registry_key"])
        with key_file(key, "sign.bad-key"):
            namespaces = (SignedNamespaces.load(options["registry"], key=key, state=_seen(key)),)
    return ResolverSettings(
        namespaces=namespaces,
        pins=PinFile(),
        dns=options["dns"],
        timeout=options["timeout"],
        telemetry=wanted(None),
    )


def _seen(key: Path) -> Path:
    """Where it is kept which issue of this registry's file was seen last, so that no older one is taken."""
    from hashlib import sha256

    from platformdirs import user_state_path

    folder = user_state_path("onym", ensure_exists=True)
    return folder / f"registry-{sha256(key.read_bytes()).hexdigest()[:16]}.seen"


def transport(options: Options) -> Transport:
    """The guarded transport that these options ask for."""
    from onym.net.limits import TLSConfig
    from onym.net.policy import Policy
    from onym.net.records import RecordResolver
    from onym.net.transport import Transport

    nameservers, port = _name_server(options["resolver"])
    return Transport(
        Policy.preset(options["policy"]),
        tls=TLSConfig(ca_files=(options["ca"],) if options["ca"] else (), minimum="1.3"),
        records=RecordResolver(nameservers, port),
    )


def _name_server(text: str | None) -> tuple[Sequence[str] | None, int]:
    if text is None:
        return None, 53
    address, found, port = text.rpartition(":") if text.count(":") == 1 else (text, "", "53")
    if not port.isdecimal() or not 0 < int(port) < 65536 or (found and not address):
        raise UsageError("a name server is ADDRESS or ADDRESS:PORT", code="usage.command-line")
    return [address.strip("[]")], int(port)


@contextmanager
def connected(
    options: Options,
    *,
    token_variable: str | None = None,
    client_id: str | None = None,
    allow: Sequence[str] = (),
) -> Iterator[AIClient]:
    """A client on these options; closed at the end. From here on logs are masked."""
    from onym.ai.client import AIClient
    from onym.ai.session import HARMLESS
    from onym.uri.redact import install_logging_filter

    install_logging_filter()
    with (
        transport(options) as wire,
        AIClient(
            resolver_settings(options),
            transport=wire,
            tokens=_tokens(token_variable, client_id),
            allow_effects={*HARMLESS, *allow},
            timeout=options["timeout"],
        ) as client,
    ):
        yield client


def _tokens(variable: str | None, client_id: str | None) -> Callable[[Resolution], tuple[Secret, str] | None]:
    """The token of the command line, which is for the one authority that the command names."""
    from onym.uri.secret import Secret

    if variable is None:
        return lambda resolution: None
    value = os.environ.get(variable)
    if not value:
        raise UsageError(f"the variable {variable} is not set", code="usage.command-line")
    if client_id is None:
        raise UsageError("a token comes with the client id that it was given to", hint="--client-id ID")
    return lambda resolution: (Secret(value), client_id)
