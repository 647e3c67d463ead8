"""`onym registry`: schemes, parameters and namespaces; the shipped facts, and a registry of one's own."""

from __future__ import annotations

import click

from onym.cli._groups import Ordered
from onym.cli._registry_act import decide, tick
from onym.cli._registry_data import backup, init, restore, verify
from onym.cli._registry_read import review, search, show, status
from onym.cli._registry_serve import serve
from onym.cli._registry_submit import submit, template
from onym.cli._registry_transfer import export, import_
from onym.cli._registry_user import user

__all__ = ["command"]


@click.group("registry", cls=Ordered)
def command() -> None:
    """Which URI schemes, llm parameters and ai namespaces exist, and who may change them. Each takes --json.

    `show`, `search`, `template`, `submit --dry-run` and `export` work without a database, from the facts
    that Onym ships. A registry of your own lies in a SQLite file or a PostgreSQL database: --db, or
    ONYM_REGISTRY_DB.

    \b
    Examples:
      onym registry show http
      onym registry template > myscheme.txt
      onym registry submit --dry-run myscheme.txt
      onym registry init --db registry.db && onym registry serve --db registry.db
    """


for each in (
    show,
    search,
    template,
    submit,
    status,
    review,
    decide,
    tick,
    init,
    import_,
    export,
    verify,
    backup,
    restore,
    serve,
    user,
):
    command.add_command(each)
