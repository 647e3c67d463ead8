"""Options that several commands share, so that one word means one thing everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from onym.cli._output import Session

__all__ = [
    "URI",
    "json_option",
    "key_stdin_option",
    "param_option",
    "policy_option",
    "uri_argument",
]

_F = TypeVar("_F", bound=Callable[..., Any])


if TYPE_CHECKING:
    _ParamType: TypeAlias = click.ParamType[str]
else:
    # generic from click 8.4 on
    _ParamType = click.ParamType


class _URIType(_ParamType):
    """A URI as a person gives it; completes the names of endpoints in the configuration."""

    name = "uri"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The named endpoints that begin so. A broken configuration completes nothing."""
        from onym.errors import OnymError
        from onym.llm.config import Config

        try:
            names = list(Config.load().endpoints)
        except OnymError:
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


URI = _URIType()


def uri_argument(function: _F) -> _F:
    """One URI: text, the name of an endpoint in the configuration, env:NAME, or - for standard input."""
    return click.argument("uri", type=URI)(function)


def _set_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        session = ctx.find_object(Session)
        if session is not None:
            session.as_json = True


json_option = click.option(
    "--json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set_json,
    help="Print JSON on standard output, errors included.",
)

policy_option = click.option(
    "--policy",
    type=click.Choice(["trusted", "local", "untrusted"]),
    help="Where the URI may lead. A URI typed here is local (this machine is allowed); one from a file, "
    "a variable or a pipe is trusted (this machine is refused).",
)

key_stdin_option = click.option(
    "--key-stdin", is_flag=True, help="Read the key from standard input, so that no history holds it."
)

param_option = click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter, as if it stood in the URI (repeatable): -p temp=0.2",
)
