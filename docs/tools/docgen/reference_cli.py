"""docs/reference/cli.md: the help of every command, as `--help` prints it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from docgen.text import GENERATED, code, table
from onym.cli._app import app
from onym.cli.commands.config import load_schemas

__all__ = ["VARIABLES", "cli_page", "json_page", "walk"]

_WIDTH = 80
#: what Onym reads of the environment, beside the key variables of providers
VARIABLES = {
    "ONYM_CONFIG": "the [configuration](config.md) file",
    "ONYM_PROXY": "the proxy, as `--proxy`: a URL, `environment` or `none`",
    "ONYM_ALLOW_LOOPBACK": "`1` allows URIs from files, variables and pipes to reach this computer",
    "ONYM_CACHE": "the folder of the embedded model's weights",
    "ONYM_CACHE_DIR": "the folder of [cached responses](../how-to/cache.md)",
    "ONYM_CACHE_SIZE": "the largest size of that folder: bytes, or `64MiB`",
    "ONYM_CACHE_AGE": "how long a cached response is valid: seconds, or `12h`, `7d`",
    "ONYM_AI_PROOF_STORE": "the shared store of `onym ai serve`, as `--proof-store`",
    "ONYM_AI_FLEET": "the database of a fleet's keys, as `--fleet` of `onym ai serve`",
    "ONYM_TELEMETRY": "`1` reports clients, endpoints, gateways to [OpenTelemetry](../how-to/telemetry.md)",
    "ONYM_PRICES": "a [list of prices](../how-to/telemetry.md#what-it-costs) of your own",
    "ONYM_REGISTRY_DB": "the database of `onym registry`: a file, or a PostgreSQL URL",
    "ONYM_REGISTRY_DATABASE": "the same, for the service",
    "ONYM_REGISTRY_ACCOUNT": "the login that `onym registry` acts as",
    "ONYM_REGISTRY_CONFIG": "the settings file of [the service](../how-to/run-a-registry.md); "
    "`ONYM_REGISTRY_` and a setting's name in capitals sets that one",
    "ONYM_REGISTRY_OIDC_": "followed by the id of a sign-in provider and `_CLIENT_SECRET`: its secret",
    "ONYM_GATEWAY_CONFIG": "the settings file of [the gateway](../how-to/run-a-gateway.md); "
    "`ONYM_GATEWAY_` and a setting's name in capitals sets that one",
    "ONYM_SIGN_INS": "a private folder for the sign-ins of `onym ai login`, instead of the keyring",
    "ONYM_DEBUG": "`1` prints tracebacks, with keys masked",
    "NO_COLOR": "any value turns colours off",
}


def cli_page() -> str:
    """The page."""
    out = [
        GENERATED,
        "# Command line\n",
        (
            "Every command accepts `--json` and then prints data, errors included: "
            "[JSON output](cli-json.md). The codes that a command ends with are in "
            "[Exit codes](exit-codes.md). `onym help options` lists the options that every command has.\n"
        ),
        table(["variable", "meaning"], ([code(name), text] for name, text in VARIABLES.items())),
    ]
    for path, command in walk(app, ("onym",)):
        out += [
            f"{'#' * min(len(path) + 1, 4)} {' '.join(path)}\n",
            f"```text\n{_help(path, command)}\n```\n",
        ]
    return "\n".join(out)


def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield the path of each command, and the command."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=" ".join(path))
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from walk(child, (*path, name))


def _help(path: tuple[str, ...], command: click.Command) -> str:
    context = command.context_class(
        command, info_name=" ".join(path), terminal_width=_WIDTH - 2, max_content_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )  # fmt: skip
    return "\n".join(line.rstrip() for line in click.unstyle(command.get_help(context)).splitlines())


def json_page() -> str:
    """The members of the JSON that each command prints."""
    schemas = load_schemas()
    out = [
        GENERATED,
        "# JSON output\n",
        (
            "With `--json`, a command prints one JSON document on standard output. A command that reports "
            "events or several inputs prints one document on each line. An error is an object with the "
            "member `error`.\n"
        ),
        "`onym help json-schema COMMAND` prints the JSON Schema (2020-12) of a command:\n",
        "```text\nonym help json-schema parse\n```\n",
        (
            "The tables list the members of each document. A member in italics is not in every document. A "
            "later version may add members, so ignore those that you do not know.\n"
        ),
        "## Errors\n",
        _members(schemas["$defs"]["error"]["properties"]["error"]),
    ]
    for name, schema in schemas["commands"].items():
        out.append(f"## onym {name}\n")
        out.extend(_members(form) for form in schema.get("anyOf", [schema]))
    return "\n".join(out)


def _members(schema: dict[str, Any]) -> str:
    if schema.get("type") == "array":
        return f"A list.\n\n{_members(schema['items'])}"
    required = schema.get("required", ())
    rows = [
        [code(name) if name in required else f"*{code(name)}*", _kind(member)]
        for name, member in schema.get("properties", {}).items()
    ]
    return table(["member", "type"], rows) if rows else "Any JSON.\n"


def _kind(schema: dict[str, Any]) -> str:
    """The type of a member in words, with the names of an object's members."""
    kinds = schema.get("type", "any")
    named = [kinds] if isinstance(kinds, str) else kinds
    words = []
    for kind in named:
        word = str(kind)
        if kind == "object" and "properties" in schema:
            word += f" ({', '.join(code(name) for name in schema['properties'])})"
        if kind == "array" and "items" in schema:
            word = f"array of {_kind(schema['items'])}"
        words.append(word)
    return " or ".join(words)
