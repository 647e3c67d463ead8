"""`onym registry webhook list` and `test`: see what webhooks of the settings received, and try one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from onym._lazy import require_extra
from onym.cli import exit_codes
from onym.cli._input import OrderedGroup, exit_with
from onym.cli._output import Session, select_fields
from onym.cli.commands.registry._common import (
    find_database,
    format_minute,
    open_store,
    pass_database,
    utc_now,
)
from onym.errors import UsageError

if TYPE_CHECKING:
    from onym.server.settings import Settings

_config_option = click.option(
    "--config", metavar="FILE", help="The settings file (TOML). Default: ONYM_REGISTRY_CONFIG."
)


@click.group("webhook", cls=OrderedGroup, short_help="List and test the webhooks of the settings.")
def webhook_command() -> None:
    """List and test the webhooks, which are [[webhooks]] tables of the settings file.

    `onym registry serve` and `onym registry tick --send` send changes of entries to them.
    """


def _load_webhook_settings(config: str | None) -> Settings:
    require_extra("starlette", "registry")
    from onym.server.settings import load_settings  # late: few commands need the web server's settings

    return load_settings(config)


@webhook_command.command("list", short_help="List webhooks and their deliveries.")
@_config_option
@pass_database
async def list_command(session: Session, /, config: str | None, db: str | None) -> None:
    """List webhooks: how many deliveries wait, were sent and were given up, and the last failure.

    \b
    Examples:
      onym registry webhook list --config registry.toml
    """
    settings = _load_webhook_settings(config)
    found: list[dict[str, Any]] = []
    async with open_store(session, find_database(session, db, config)) as store:
        for hook in settings.webhooks:
            counts = await store.outbox.count_deliveries(hook.name)
            sent = counts.last_sent
            found.append(
                {
                    "name": hook.name,
                    "origin": "/".join(hook.url.split("/")[:3]),
                    "registries": list(hook.registries),
                    **select_fields(counts, "waiting", "sent", "given_up", "reason"),
                    "last_sent": None if sent is None else format_minute(sent),
                }
            )
    session.print_record({"webhooks": found})
    session.print_table(
        [
            (
                row["name"],
                row["origin"],
                ", ".join(row["registries"]) or "all registries",
                f"{row['sent']} sent, {row['waiting']} waiting, {row['given_up']} given up",
                row["reason"] or "",
            )
            for row in found
        ],
        styles=("name",),
    )
    if not found and not session.as_json:
        session.print_note("the settings have no [[webhooks]]")


@webhook_command.command("test", short_help="Send a test delivery to a webhook.")
@click.argument("name")
@_config_option
@pass_database
async def test_command(session: Session, /, name: str, config: str | None, db: str | None) -> None:
    """Send a delivery of the type registry.test to the webhook NAME now. The exit code is 11 if it fails.

    \b
    Examples:
      onym registry webhook test catalogue --config registry.toml
    """
    settings = _load_webhook_settings(config)
    hook = next((hook for hook in settings.webhooks if hook.name == name), None)
    if hook is None:
        names = ", ".join(hook.name for hook in settings.webhooks)
        raise UsageError(
            f'the settings have no webhook "{name}"',
            code="registry.unknown-webhook",
            hint=f"the webhooks are {names}" if names else "add a [[webhooks]] table to the settings file",
        )
    from onym.server.notices import WebhookSender  # late: see above

    async with open_store(session, find_database(session, db, config)) as store:
        reason = await WebhookSender(settings, store, utc_now).send_test(hook)
    session.print_record({"webhook": name, "ok": reason is None, "reason": reason})
    if reason is None:
        session.print_line(f"{session.paint('ok', 'good')}  {name} accepted the test delivery")
        return
    session.print_line(f"{session.paint('failed', 'bad')}  {name}: {reason}")
    exit_with(exit_codes.REGISTRY)
