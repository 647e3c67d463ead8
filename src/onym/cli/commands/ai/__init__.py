"""`onym ai`: find, invoke and verify `ai://` resources, and serve your own."""

from __future__ import annotations

import click

from onym.cli._commands import OrderedGroup
from onym.cli.commands.ai.client import describe_command, discover_command, invoke_command, resolve_command
from onym.cli.commands.ai.gateway import gateway_command
from onym.cli.commands.ai.login import login_command, logout_command, whoami_command
from onym.cli.commands.ai.receipts import keys_command, verify_command
from onym.cli.commands.ai.serve import audit_command, serve_command
from onym.cli.commands.ai.tasks import approve_command, tasks_command


@click.group("ai", cls=OrderedGroup)
def ai_command() -> None:
    """Find, invoke, verify and serve ai:// resources. Every command accepts --json.

    \b
    Examples:
      onym ai discover bank.example
      onym ai describe ai://factory.example/model/helper
      onym ai invoke ai://factory.example/model/helper -d @prompt.json --save out/
      onym ai verify out/receipt.jwt --body out/body --history history.json
      onym ai keys new keys/ && onym ai serve module:app --keys keys/
    """


for command in (
    discover_command,
    resolve_command,
    describe_command,
    invoke_command,
    tasks_command,
    approve_command,
    login_command,
    logout_command,
    whoami_command,
    verify_command,
    keys_command,
    serve_command,
    gateway_command,
    audit_command,
):
    ai_command.add_command(command)
