"""`onym registry`: look up entries, ask for registration, decide requests, and run a registry."""

from __future__ import annotations

import click

from onym.cli._input import OrderedGroup
from onym.cli.commands.registry.admin import (
    backup_command,
    init_command,
    restore_command,
    serve_command,
    verify_command,
)
from onym.cli.commands.registry.lookup import review_command, search_command, show_command, status_command
from onym.cli.commands.registry.procedure import (
    decide_command,
    submit_command,
    template_command,
    tick_command,
)
from onym.cli.commands.registry.transfer import export_command, import_command
from onym.cli.commands.registry.user import user_command


@click.group("registry", cls=OrderedGroup)
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
    show_command,
    search_command,
    template_command,
    submit_command,
    status_command,
    review_command,
    decide_command,
    tick_command,
    init_command,
    import_command,
    export_command,
    verify_command,
    backup_command,
    restore_command,
    serve_command,
    user_command,
):
    registry_command.add_command(command)
