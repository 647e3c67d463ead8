"""`onym registry`: look up entries, ask for registration, decide requests, and run a registry."""

from __future__ import annotations

import click

from onym.cli._commands import OrderedGroup
from onym.cli.commands.registry import admin, lookup, procedure, transfer, user


@click.group("registry", cls=OrderedGroup, short_help="Look up entries, request changes, run a registry.")
def registry_command() -> None:
    """Look up registry entries, request changes, or run a registry. Every command accepts --json.

    Without a database, `show`, `search`, `template`, `submit --dry-run` and `export` use the registry data
    that Onym ships. Your own registry is a SQLite file or a PostgreSQL database: set --db or
    ONYM_REGISTRY_DB.

    \b
    Examples:
      onym registry show http
      onym registry template > myscheme.txt
      onym registry submit --dry-run myscheme.txt
      onym registry init --db registry.db && onym registry serve --db registry.db
    """


for command in (
    lookup.show_command,
    lookup.search_command,
    procedure.template_command,
    procedure.submit_command,
    lookup.status_command,
    lookup.review_command,
    procedure.decide_command,
    transfer.link_messages_command,
    procedure.tick_command,
    admin.init_command,
    admin.define_command,
    transfer.import_command,
    transfer.export_command,
    transfer.mirror_command,
    lookup.statistics_command,
    admin.verify_command,
    admin.audit_command,
    admin.redact_command,
    admin.backup_command,
    admin.restore_command,
    admin.serve_command,
    user.user_command,
    admin.webhook_command,
):
    registry_command.add_command(command)
