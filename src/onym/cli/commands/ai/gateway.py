"""`onym ai gateway`: serve `ai:` names to web users over HTTPS, and operate that gateway."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onym.cli import exit_codes
from onym.cli._commands import OrderedGroup, confirm_action, exit_with, pass_session, yes_option
from onym.cli._output import Session
from onym.common.text import format_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onym.server.gateway import GatewaySettings


_config_option = click.option(
    "--config", metavar="FILE", help="The settings file (TOML). Default: ONYM_GATEWAY_CONFIG."
)


@click.group(
    "gateway",
    cls=OrderedGroup,
    invoke_without_command=True,
    short_help="Serve ai:// resources to web users over HTTPS.",
)
@_config_option
@click.option("--host", metavar="ADDRESS", help="The address to listen on (127.0.0.1, or the settings).")
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="PORT", help="The port. Default: 8480, or the settings."
)
@click.option("--base-url", metavar="URL", help="The public origin, such as https://gw.example.")
@click.option("--tls-cert", "certificate", metavar="FILE", help="The certificate chain (PEM).")
@click.option("--tls-key", "key", metavar="FILE", help="Its private key (PEM).")
@click.option("--keys", metavar="DIR", help="The folder of the signing keys (onym ai keys new).")
@click.option("--audit", metavar="FILE", help="The audit log. Default: none.")
@click.option("--ca", "ca_files", multiple=True, metavar="FILE",
              help="A certificate authority (PEM) to trust besides the system's (repeatable).")  # fmt: skip
@click.option("--workers", metavar="N", type=click.IntRange(1, 128),
              help="Processes that serve the port (Linux). Default: 1, or the settings.")  # fmt: skip
@click.option("--policy", type=click.Choice(["local", "untrusted"]),
              help="Authorities that may be reached: public ones, or local ones too, for tests. "
              "Default: untrusted, or the settings.")  # fmt: skip
@pass_session
def gateway_command(session: Session, /, **_options: Any) -> None:
    """Serve ai:// resources to web users over HTTPS, until Ctrl-C.

    `https://GATEWAY/gateway/AUTHORITY/PATH` is `ai://AUTHORITY/PATH`. The gateway reaches read-only resources
    without sign-in, and more for people who sign in. The settings come from --config, ONYM_GATEWAY_*
    variables and these options; later ones override earlier ones.

    \b
    Examples:
      onym ai gateway
      onym ai gateway --config gateway.toml
      onym ai gateway --base-url https://gw.example --tls-cert gw.pem --keys keys
    """
    if session.context is not None and session.context.invoked_subcommand is not None:
        return
    settings, config, options = _load_settings(session)

    def ready(port: int) -> None:
        url = f"{settings.base_url}/"
        if session.as_json:
            session.print_json_line({"url": url, "port": port})
            return
        session.print_error(f"{session.paint('serving', 'good', sys.stderr)}: {url} (Ctrl-C ends it)")
        if settings.keys is None:
            session.print_note(
                "receipts of this gateway are signed with a temporary key; use --keys for a permanent one"
            )
        if settings.audit is None:
            session.print_note("no audit log is written; --audit FILE writes one")

    if settings.workers == 1:
        _serve_gateway(ready, config, options, host=settings.host, port=settings.port)
        return
    from onym.server.workers import run_workers

    run_workers(
        _serve_gateway,
        config,
        options,
        count=settings.workers,
        host=settings.host,
        port=settings.port,
        ready=lambda ports: ready(ports[0]),
    )


def _load_settings(
    session: Session, file: str | None = None
) -> tuple[GatewaySettings, str | None, dict[str, Any]]:
    """Return the settings of `onym ai gateway` or of a command below it, and their file and options.

    `file` is the `--config` of a command below it, which may also be before its name.
    """
    from onym.server.gateway import load_gateway_settings  # late: the web server is large

    context = session.context
    while context is not None and context.command is not gateway_command:
        context = context.parent
    assert context is not None  # noqa: S101 - only commands of this group call it
    options = dict(context.params)
    config, policy = file or options.pop("config"), options.pop("policy")
    options.pop("config", None)
    options["ca_files"] = options["ca_files"] or None
    options["network"] = _NETWORKS.get(policy)
    return load_gateway_settings(config, **options), config, options


def _serve_gateway(
    report: Callable[[int], object], config: str | None, options: Mapping[str, Any], **address: Any
) -> None:
    """Serve a gateway in this process, with the settings of the command. Call `report` with its port."""
    from onym.server.gateway import create_gateway, load_gateway_settings
    from onym.server.http_server import run_app

    settings = load_gateway_settings(config, **options)
    run_app(
        create_gateway(settings),
        certificate=settings.certificate,
        key=settings.key,
        plain=settings.behind_proxy,
        ready=report,
        client_ca=settings.client_ca,
        certificate_proxies=settings.certificate_proxies,
        **address,
    )


@gateway_command.group("secrets")
def secrets_command() -> None:
    """Manage the secrets that all processes of a gateway share. Every command accepts --json.

    DIR is a folder that only you can read. All machines mount it, or get a copy of it.

    \b
    Examples:
      onym ai gateway secrets rotate /etc/onym/secrets
    """


@secrets_command.command("rotate", short_help="Make a new secret, with overlap.")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--revoke", is_flag=True, help="Remove the old secrets at once. People have to sign in again.")
@yes_option
@pass_session
def rotate_secrets_command(session: Session, /, folder: Path, revoke: bool, yes: bool) -> None:
    """Make a new secret for nonces, seals and forms, and keep the current one as the previous one.

    DIR is created if it is missing. Running processes read it every 30 seconds and use the new secret after
    two minutes. The previous secret is accepted until the next rotation: wait a day between two rotations, so
    that nobody has to sign in again.

    \b
    Examples:
      onym ai gateway secrets rotate /etc/onym/secrets
      onym ai gateway secrets rotate /etc/onym/secrets --revoke
    """
    from onym.sign.sealing import rotate_secrets  # late, as in every command

    if revoke:
        confirm_action(session, f"Remove the old secrets in {folder}? People have to sign in again.", yes=yes)
    begins = datetime.fromtimestamp(rotate_secrets(folder, revoke=revoke), UTC)
    session.print_record({"folder": str(folder), "used_from": format_timestamp(begins), "revoked": revoke})
    session.print_line(f"{folder}: the new secret is used from {begins:%Y-%m-%d %H:%M:%S} UTC")


_NETWORKS: Final = {"local": "local", "untrusted": "public"}
_MARKS: Final = {"ok": "good", "warning": "warning", "failed": "bad"}


@gateway_command.command("check", short_help="Check the settings, keys, stores and servers of a gateway.")
@_config_option
@pass_session
def check_gateway_command(session: Session, /, config: str | None) -> None:
    """Check the settings, keys, stores and servers of a gateway, and say what to do.

    It starts no server, and sends no ai:// request. Other options of `onym ai gateway`, such as --keys, come
    before the word check. The exit code is 1 if the gateway cannot serve.

    \b
    Examples:
      onym ai gateway check --config gateway.toml
      onym ai gateway --keys keys check --json
    """
    from onym.server.gateway.factory import check_gateway  # late, as in every command

    parts = asyncio.run(check_gateway(_load_settings(session, config)[0]))
    failed = any(part.state == "failed" for part in parts)
    session.print_record({"ready": not failed, "parts": [asdict(part) for part in parts]})
    for part in parts:
        session.print_line(f"{session.paint(part.state, _MARKS[part.state])}: {part.name}: {part.message}")
        if part.hint:
            session.print_line(f"  {part.hint}")
    if failed:
        exit_with(exit_codes.CHECK_FAILED)


@gateway_command.group("sessions")
def sessions_command() -> None:
    """Manage the sessions of people at a gateway. Every command accepts --json.

    \b
    Examples:
      onym ai gateway sessions end "login ann@example.org" --config gateway.toml
    """


@sessions_command.command("end", short_help="Sign a person out everywhere.")
@click.argument("user", metavar="USER")
@_config_option
@yes_option
@pass_session
def end_sessions_command(session: Session, /, user: str, config: str | None, yes: bool) -> None:
    """Sign a person out everywhere: end their sessions, drop their tokens and withdraw their waiting calls.

    USER is the ID of a provider, a space, and the person's subject or verified e-mail address there. Running
    gateways with the same store see it at once. Tasks that the person began go on. The exit code is 1 if the
    person had no session.

    \b
    Examples:
      onym ai gateway sessions end "login ann@example.org" --config gateway.toml
    """
    from onym.server.gateway.factory import end_person_sessions  # late, as in every command

    settings = _load_settings(session, config)[0]
    confirm_action(session, f"Sign {user} out everywhere, and withdraw their waiting calls?", yes=yes)
    ended = asyncio.run(end_person_sessions(settings, user))
    count = sum(person.sessions for person in ended)
    session.print_record({"ended": count, "people": [asdict(person) for person in ended]})
    session.print_line(f"{count} session{'' if count == 1 else 's'} of {user} ended")
    if not count:
        exit_with(exit_codes.CHECK_FAILED)
