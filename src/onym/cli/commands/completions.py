"""`onym completions`: the script that teaches a shell to complete `onym`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from onym.cli._options import json_option
from onym.cli._output import Session
from onym.errors import UsageError

__all__ = ["command"]

#: where each shell looks for such a script
_PLACES = {
    "bash": "~/.local/share/bash-completion/completions/onym",
    "zsh": "~/.zfunc/_onym",
    "fish": "~/.config/fish/completions/onym.fish",
}


@click.command("completions")
@click.argument("shell", type=click.Choice(sorted(_PLACES)), metavar="SHELL")
@json_option
@click.pass_obj
def command(session: Session, shell: str) -> None:
    """Print the completion script of SHELL (bash, fish or zsh): commands, options, and the names of your
    endpoints.

    \b
    Examples:
      onym completions bash > ~/.local/share/bash-completion/completions/onym
      onym completions zsh > ~/.zfunc/_onym        (with fpath+=~/.zfunc before compinit)
      onym completions fish > ~/.config/fish/completions/onym.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError("no completion script for this shell")
    from onym.cli._app import app

    script = kind(app, {}, "onym", "_ONYM_COMPLETE").source()
    session.say(script)
    session.record({"shell": shell, "place": _PLACES[shell], "script": script})
