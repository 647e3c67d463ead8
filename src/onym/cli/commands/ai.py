"""`onym ai`: ai:// names. Find who answers, ask what a resource is, invoke it, verify what came back."""

from __future__ import annotations

import click

from onym.cli import (
    _ai_audit,
    _ai_describe,
    _ai_discover,
    _ai_invoke,
    _ai_keys,
    _ai_resolve,
    _ai_serve,
    _ai_verify,
)
from onym.cli._groups import Ordered

__all__ = ["command"]


@click.group("ai", cls=Ordered)
def command() -> None:
    """ai:// names: who answers for one, what it is, its signed results. Each takes --json.

    \b
    Examples:
      onym ai discover bank.example
      onym ai describe ai://factory.example/model/helper
      onym ai invoke ai://factory.example/model/helper -d '{"prompt": "Say hello."}' --save out/
      onym ai verify out/receipt.jwt --body out/body --history history.json
      onym ai keys new keys/ && onym ai serve module:app --keys keys/
    """


for each in (
    _ai_discover,
    _ai_resolve,
    _ai_describe,
    _ai_invoke,
    _ai_verify,
    _ai_keys,
    _ai_serve,
    _ai_audit,
):
    command.add_command(each.command)
