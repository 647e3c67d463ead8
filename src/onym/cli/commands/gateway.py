"""`onym gateway`: an HTTPS gateway to ai names."""

from __future__ import annotations

import sys
from typing import Any

import click

from onym.cli._options import json_option
from onym.cli._output import Session

__all__ = ["command"]


@click.command("gateway", short_help="Serve ai: names over HTTPS: map, resolve, verify, hand on.")
@click.option("--config", metavar="FILE", help="Settings (TOML). Default: ONYM_GATEWAY_CONFIG.")
@click.option("--host", metavar="ADDRESS", help="Where to listen. Default: 127.0.0.1, or the settings'.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port. Default: 8480, or the settings'.")
@click.option("--base-url", metavar="URL", help="The origin that people see, such as https://gw.example.")
@click.option("--tls-cert", "certificate", metavar="FILE", help="The certificate chain (PEM).")
@click.option("--tls-key", "key", metavar="FILE", help="Its private key (PEM).")
@click.option("--keys", metavar="DIR", help="The folder of the keys that sign: onym ai keys new.")
@click.option("--audit", metavar="FILE", help="The audit log. Default: none.")
@click.option(
    "--ca-file", "ca_files", multiple=True, metavar="FILE", help="Trust these authorities too (PEM)."
)
@click.option("--local", is_flag=True, help="Reach authorities on this machine too, for trials.")
@json_option
@click.pass_obj
def command(session: Session, /, config: str | None, local: bool, **given: Any) -> None:
    """Serve an HTTPS gateway to ai: names until Ctrl-C: pages for people, verified results for programs.

    `https://GATEWAY/gateway/AUTHORITY/PATH` is `ai://AUTHORITY/PATH`. Only resources that read and ask nobody
    to sign in are reached. Settings come from --config, ONYM_GATEWAY_* variables and these options, the later
    the stronger.

    \b
    Examples:
      onym gateway
      onym gateway --base-url https://gw.example --tls-cert gw.pem --keys keys --audit audit.jsonl
    """
    session.command = "gateway"
    from onym.server.gateway import create_gateway, load_gateway_settings  # late: the web server is heavy
    from onym.server.listen import listen

    given["ca_files"] = given["ca_files"] or None
    settings = load_gateway_settings(config, network="local" if local else None, **given)
    app = create_gateway(settings)

    def ready(port: int) -> None:
        url = f"{settings.base_url}/"
        if session.as_json:
            session.line({"url": url, "port": port})
            return
        session.complain(f"{session.paint('serving', 'good', sys.stderr)}: {url} (Ctrl-C ends it)")
        if settings.keys is None:
            session.note("receipts of this gateway are signed with a key that ends with it; --keys keeps one")
        if settings.audit is None:
            session.note("no audit log is kept; --audit FILE keeps one")

    listen(
        app,
        host=settings.host,
        port=settings.port,
        certificate=settings.certificate,
        key=settings.key,
        plain=settings.behind_proxy,
        ready=ready,
    )
