"""`onym registry serve`: the service for people and programs."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from onym._lazy import require
from onym.cli._options import json_option
from onym.cli._output import Session
from onym.cli._registry_base import db_option, place_of
from onym.errors import UsageError
from onym.net.hosts import is_loopback

if TYPE_CHECKING:
    from onym.server.settings import Settings

__all__ = ["serve"]


@click.command("serve", short_help="Serve the registry: pages for people, JSON for programs.")
@click.option("--host", metavar="ADDRESS", help="Where to listen. Default: 127.0.0.1, or the settings'.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port. Default: 8000, or the settings'.")
@click.option(
    "--base-url",
    metavar="ORIGIN",
    help="What people see: https://registry.example. Needed where not only this machine is to reach it.",
)
@click.option("--config", metavar="FILE", help="Settings (TOML). Default: ONYM_REGISTRY_CONFIG.")
@db_option
@json_option
@click.pass_obj
def serve(session: Session, /, db: str | None, config: str | None, **given: Any) -> None:
    """Serve the registry until Ctrl-C: pages for people, JSON for programs at the same addresses.

    Settings come from --config, ONYM_REGISTRY_* variables and these options, the later the stronger: mail,
    OpenID Connect, the public address. Plain HTTP is spoken: TLS is for a proxy in front to speak.

    \b
    Examples:
      onym registry serve --db registry.db
      onym registry serve --config /etc/onym/registry.toml
    """
    session.command = "registry serve"
    require("starlette", "registry")
    from onym.server.run import run  # late: the web server is needed nowhere else
    from onym.server.settings import load_settings

    settings = _reachable(load_settings(config, database=place_of(session, db, config), **given))

    def ready(_: int) -> None:
        url = f"{settings.base_url}/"
        if session.as_json:
            session.line({"url": url})
        else:
            session.complain(f"{session.paint('serving', 'good', sys.stderr)}: {url} (Ctrl-C ends it)")

    run(settings, ready=ready)


def _reachable(settings: Settings) -> Settings:
    """Where nobody said what address people see, it is the one that is listened on.

    That would be plain HTTP, which is for this machine alone. Raises UsageError for another address.
    """
    from onym.server.settings import Settings

    if settings.base_url != Settings().base_url:
        return settings
    if not is_loopback(settings.host):
        raise UsageError(
            f"nobody said at what address people see what listens on {settings.host}",
            code="usage.base-url",
            hint="--base-url https://registry.example, or base_url in the settings: the address of the "
            "proxy that speaks TLS; without one, --host 127.0.0.1",
        )
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return replace(settings, base_url=f"http://{host}:{settings.port}", allowed_hosts=())
