"""docs/reference/cli.md: the help of every command, as `--help` prints it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from docgen.text import GENERATED, code, table
from onym.cli._app import app

__all__ = ["VARIABLES", "cli_page", "walk"]

_WIDTH = 80
#: what Onym reads of the environment, beside the key variables of providers
VARIABLES = {
    "ONYM_CONFIG": "the [configuration](config.md) file",
    "ONYM_PROXY": "the proxy, as `--proxy`: a URL, `environment` or `none`",
    "ONYM_ALLOW_LOOPBACK": "`1` allows URIs to lead to this machine, wherever they come from",
    "ONYM_CACHE": "the folder of the embedded model's weights",
    "ONYM_CACHE_DIR": "the folder of [cached responses](../how-to/cache.md)",
    "ONYM_CACHE_SIZE": "its largest size: bytes, or `64MiB`",
    "ONYM_CACHE_AGE": "how long an answer is kept: seconds, or `12h`, `7d`",
    "ONYM_AI_PROOF_STORE": "the shared store of `onym ai serve`, as `--proof-store`",
    "ONYM_AI_FLEET": "the database of a fleet's keys, as `--fleet` of `onym ai serve`",
    "ONYM_TELEMETRY": "`1` reports clients, endpoints, gateways to [OpenTelemetry](../how-to/telemetry.md)",
    "ONYM_PRICES": "a [list of prices](../how-to/telemetry.md#what-it-costs) of your own",
    "ONYM_REGISTRY_DB": "the database of `onym registry`: a file, or a PostgreSQL URL",
    "ONYM_REGISTRY_DATABASE": "the same, as the settings of the service call it",
    "ONYM_REGISTRY_ACCOUNT": "the login that `onym registry` acts as",
    "ONYM_REGISTRY_CONFIG": "the settings' file of [the service](../how-to/run-a-registry.md); "
    "`ONYM_REGISTRY_` and a setting's name in capitals sets that one",
    "ONYM_REGISTRY_OIDC_": "followed by the id of a sign-in provider and `_CLIENT_SECRET`: its secret",
    "ONYM_GATEWAY_CONFIG": "the settings' file of [the gateway](../how-to/run-a-gateway.md); "
    "`ONYM_GATEWAY_` and a setting's name in capitals sets that one",
    "ONYM_SIGN_INS": "a private folder for the sign-ins of `onym ai login`, instead of the keyring",
    "ONYM_DEBUG": "`1` shows where a bug is, keys masked",
    "NO_COLOR": "any value switches colours off",
}


def cli_page() -> str:
    """The page."""
    out = [
        GENERATED,
        "# Command line\n",
        (
            "Every command takes `--json` and then prints data, errors included. What it ends with: "
            "[Exit codes](exit-codes.md).\n"
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
    context = click.Context(
        command, info_name=" ".join(path), terminal_width=_WIDTH, max_content_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )  # fmt: skip
    return "\n".join(line.rstrip() for line in click.unstyle(command.get_help(context)).splitlines())
