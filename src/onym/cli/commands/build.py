"""`onym build`: a URI from its parts, each encoded as its place needs."""

from __future__ import annotations

from typing import Any

import click

from onym.cli._input import read_key, read_params
from onym.cli._options import json_option, key_stdin_option, param_option
from onym.cli._output import Session
from onym.errors import UsageError
from onym.uri.llm import LLMURI

__all__ = ["command"]


@click.command("build")
@click.option("--host", metavar="HOST", help="The server: a name or an address.")
@click.option(
    "--provider", metavar="WORD", help="In the place of --host: openai, anthropic, ollama, embedded, ..."
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Where the server's own default is not right.",
)
@click.option("--model", required=True, metavar="NAME", help="The model; each / separates segments.")
@click.option("--label", metavar="TEXT", help="The app label: your application, project or organisation.")
@key_stdin_option
@click.option("--key-env", metavar="NAME", help="Refer to the variable that holds the key: auth=env:NAME.")
@param_option
@click.option("--profile", metavar="NAME", help="A profile of the configuration file (the fragment).")
@click.option("--reveal", is_flag=True, help="Write the key instead of ***.")
@json_option
@click.pass_obj
def command(session: Session, /, **given: Any) -> None:
    """Make a URI from raw parts. Whatever they hold is encoded, so the result is always a correct URI.

    \b
    Examples:
      onym build --provider openai --model gpt-5 -p temp=0.2 --key-env OPENAI_API_KEY
      onym build --host localhost --port 8080 --model qwen/qwen3:8b
      pass show openai | onym build --provider openai --model gpt-5 --key-stdin --reveal
    """
    uri = _build(session, given)
    text = uri.render(reveal=given["reveal"])
    session.say(text)
    session.record({"uri": text})
    if uri.key is not None and not given["reveal"]:
        session.note("the key is shown as ***; --reveal writes it")


def _build(session: Session, given: dict[str, Any]) -> LLMURI:
    if (given["host"] is None) is (given["provider"] is None):
        raise UsageError("give one of --host and --provider", code="usage.command-line")
    if given["key_stdin"] and given["key_env"]:
        raise UsageError("give one of --key-stdin and --key-env", code="usage.command-line")
    params = dict(read_params(given["params"]))
    if given["key_env"]:
        params["auth"] = f"env:{given['key_env']}"
    return LLMURI.build(
        _host(given),
        model=given["model"],
        label=given["label"],
        key=read_key(session) if given["key_stdin"] else None,
        port=given["port"],
        params=params,
        fragment=given["profile"],
    )


def _host(given: dict[str, Any]) -> str:
    if given["host"] is not None:
        return str(given["host"])
    from onym.llm.providers import ProviderTable, near

    table = ProviderTable.builtin()
    row = table.alias(given["provider"])
    if row is None or row.host is None:
        raise UsageError(
            "no provider has that name",
            code="usage.provider",
            hint=near(given["provider"], table.aliases()) or "give its host with --host",
        )
    return row.host
