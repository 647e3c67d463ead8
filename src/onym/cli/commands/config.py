"""`onym config`, `onym cache` and `onym completions`: configuration file, response cache and shell."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from onym.cli import exit_codes
from onym.cli._input import exit_with, pass_session
from onym.cli._output import Session, encode_json, select_fields, to_plain_data
from onym.common.text import escape_unprintable
from onym.errors import ConfigError

if TYPE_CHECKING:
    from onym.llm.config import Config, NetworkSettings

TEMPLATE = """\
# The configuration of Onym. Every line is optional. `onym config check` checks this file.

# Names for URIs: `onym chat fast "Hello"`. Keep keys out of them: Onym reads the provider's own variable
# (OPENAI_API_KEY, ...), and ?auth= refers to any other place.
[endpoints]
# fast = "llm://openai/gpt-5.4-mini?max_tokens=500"
# careful = "llm://anthropic/claude-sonnet-5-5?max_tokens=2000"
# team = "llm://llm.example.com/qwen3?auth=env:TEAM_KEY"
# here = "llm://embedded/smollm2-135m-instruct"
# ollama = "llm://localhost:11434/llama3"        # needs preset = "local" below, or --policy local

# Parameters by name, chosen by a URI's fragment: llm://openai/gpt-5.5#code-review
# [profiles.code-review]
# temp = 0.2
# system = "You review code. Be brief."

# Hosts that URIs may reach: "trusted" (default), "local" (this computer too) or "untrusted".
# [policy]
# preset = "local"
# allow_hosts = ["api.openai.com", "localhost"]

# How connections leave this computer. Without these lines they are direct, whatever HTTPS_PROXY says.
# [network]
# proxy = "environment"                  # HTTPS_PROXY and NO_PROXY; or "http://proxy.corp.example:3128"
# no_proxy = ["intra.corp.example"]
# ca_files = ["/etc/ssl/corp-ca.pem"]    # trusted besides the system's authorities
# client_cert = "client.pem"
# client_key = "client-key.pem"

# Your own server. It uses the OpenAI chat format, unless dialect names another one
# (anthropic_messages, gemini, ollama, ...).
# [providers.mycorp]
# hosts = ["llm.mycorp.example"]
# dialect = "openai_chat"
# base_path = "/v1"
# key_variables = ["MYCORP_KEY"]
"""


@click.group("config")
def config_command() -> None:
    """Find, show, check or create the configuration file.

    It contains named endpoints, profiles, the policy, the network (proxy, CA, client certificate) and your
    own providers. ONYM_CONFIG names another file.

    \b
    Examples:
      onym config init
      onym config show
      onym config check
    """


@config_command.command("path", short_help="Print the path of the configuration file.")
@pass_session
def path_command(session: Session, /) -> None:
    """Print the path of the configuration file, even if the file does not exist."""
    from onym.llm.config import default_path

    path = default_path()
    session.print_line(str(path))
    session.print_record({"path": str(path), "exists": path.exists()})


@config_command.command("show")
@pass_session
def show_command(session: Session, /) -> None:
    """Print the configuration, with keys masked."""
    from onym.llm.config import Config

    record = _build_config_record(session, Config.load())
    session.print_record(record)
    if not session.as_json:
        _print_config(session, record)


@config_command.command("check", short_help="Check the configuration file.")
@pass_session
def check_command(session: Session, /) -> None:
    """Check every endpoint, profile and rule of the configuration file. The exit code is 1 after an error."""
    from onym.llm.config import Config

    config = Config.load()
    findings = config.check()
    wrong = any(finding.severity == "error" for finding in findings)
    records = [
        {**select_fields(finding, "severity", "where"), "message": session.mask(finding.message)}
        for finding in findings
    ]
    session.print_record({"path": _get_path_text(config), "ok": not wrong, "findings": records})
    for record in records:
        severity = session.paint(record["severity"], record["severity"])
        place, message = escape_unprintable(record["where"]), escape_unprintable(record["message"])
        session.print_line(f"{severity}: {place}: {message}")
    if not findings:
        path = _get_path_text(config) or "no configuration file"
        session.print_line(f"{session.paint('ok', 'good')}  {path}")
    exit_with(exit_codes.CHECK_FAILED if wrong else exit_codes.OK)


@config_command.command("init", short_help="Create a configuration file.")
@pass_session
def init_command(session: Session, /) -> None:
    """Create a configuration file in which every line is a comment. An existing file stays unchanged."""
    from onym.llm.config import default_path

    path = default_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # only its owner can read the file, because it may contain a key
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        hint = "edit the file, or remove it first"
        raise ConfigError(f"{path} exists already", code="config.exists", hint=hint) from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        # editors complete and check the file by this schema
        out.write(f"#:schema {get_schema_path('config').as_uri()}\n{TEMPLATE}")
    session.print_line(f"wrote {path}")
    session.print_record({"path": str(path)})


#: the settings files that have a JSON Schema
SCHEMAS = {
    "config": "the configuration file",
    "gateway": "the settings of a gateway",
    "registry": "the settings of a registry service",
    "registries": "registries of your own",
}


def get_schema_path(name: str) -> Path:
    """Return the JSON Schema that Onym ships for a file of settings."""
    return Path(__file__).parents[1] / "data" / "schemas" / f"{name}.schema.json"


@config_command.command("schema", short_help="Print the JSON Schema of a settings file.")
@click.argument("name", type=click.Choice(list(SCHEMAS)), default="config", metavar="[NAME]")
@pass_session
def schema_command(session: Session, name: str) -> None:
    """Print the JSON Schema of a settings file, with which editors complete and check it.

    NAME is config (the default), gateway, registry or registries. Put `#:schema ./NAME.schema.json` into the
    first line of the TOML file.

    \b
    Examples:
      onym config schema > config.schema.json
      onym config schema gateway > gateway.schema.json
    """
    text = get_schema_path(name).read_text(encoding="utf-8")
    session.print_line(text.rstrip("\n"))
    session.print_record({"name": name, "schema": json.loads(text)})


def _get_path_text(config: Config) -> str | None:
    return None if config.path is None else str(config.path)


def _build_config_record(session: Session, config: Config) -> dict[str, Any]:
    from onym.llm.providers import ProviderTable

    built_in = set(ProviderTable.builtin().names())
    return {
        "path": _get_path_text(config),
        "endpoints": {name: session.mask(text) for name, text in config.endpoints.items()},
        "profiles": {name: to_plain_data(values) for name, values in config.profiles.items()},
        "policy": None if config.policy is None else _build_policy_record(config.policy),
        "network": _build_network_record(config.network),
        "providers": [row.as_dict() for row in config.providers if row.name not in built_in],
    }


def _build_network_record(settings: NetworkSettings) -> dict[str, Any] | None:
    """Return the values that the file sets, without the login at the proxy; None if it sets none."""
    from onym.llm.config import parse_proxy

    proxy, tls = settings.proxy, settings.tls
    parsed = None if proxy is None else parse_proxy(proxy, {})
    record = {
        # "environment" and "none" stay words
        "proxy": None if proxy is None else parsed.text if parsed else proxy.reveal(),
        "no_proxy": list(settings.no_proxy) or None,
        "ca_files": list(tls.ca_files) or None,
        **select_fields(tls, "client_cert", "client_key"),
        "tls_loopback": tls.loopback or None,
    }
    return {name: value for name, value in record.items() if value is not None} or None


def _build_policy_record(policy: Any) -> dict[str, Any]:
    from dataclasses import fields

    values = select_fields(policy, *(field.name for field in fields(policy) if field.init))
    return {
        name: sorted(value) if isinstance(value, (frozenset, tuple)) else value
        for name, value in values.items()
    }


def _print_config(session: Session, record: dict[str, Any]) -> None:
    session.print_line(record["path"] or "no configuration file; run onym config init to create one")
    providers = {row["name"]: ", ".join(row["hosts"]) for row in record["providers"]}
    for title in ("endpoints", "policy", "network", "profiles", "providers"):
        values = providers if title == "providers" else record[title]
        if values:
            session.print_line("\n" + session.paint(title, "name"))
            rows = [
                (name, value if isinstance(value, str) else encode_json(value))
                for name, value in values.items()
            ]
            session.print_table(rows, indent="  ", styles=("dim",))


@click.group("cache")
def cache_command() -> None:
    """Inspect and clear the response cache, which calls with cache=true use.

    The cache is in your cache folder; ONYM_CACHE_DIR names another one. ONYM_CACHE_SIZE (256MiB) and
    ONYM_CACHE_AGE (7d) limit its size and the age of responses.

    \b
    Examples:
      onym chat 'llm://openai/gpt-5.4-mini?cache=true' "Say hello."
      onym cache stats
      onym cache clear
    """


@cache_command.command("stats")
@pass_session
def stats_command(session: Session) -> None:
    """Show the path, the size and the limits of the cache."""
    from onym.llm.cache import default_cache

    cache = default_cache()
    contents, settings = cache.contents(), cache.settings
    record: dict[str, Any] = {
        "folder": str(settings.folder),
        "answers": contents.entries,
        "octets": contents.octets,
        "most_octets": settings.size,
        "most_seconds": settings.age,
        "oldest": _format_date(contents.oldest),
        "newest": _format_date(contents.newest),
    }
    session.print_record(record)
    rows = [
        ("folder", record["folder"]),
        ("answers", str(record["answers"])),
        ("size", f"{_format_size(contents.octets)} of {_format_size(settings.size)}"),
        ("expires after", _format_duration(settings.age)),
        ("oldest", record["oldest"] or "-"),
        ("newest", record["newest"] or "-"),
    ]
    session.print_table(rows, styles=("dim",))


@cache_command.command("clear")
@pass_session
def clear_command(session: Session) -> None:
    """Delete every cached response. Running processes may keep using the cache."""
    from onym.llm.cache import default_cache

    cache = default_cache()
    cleared, folder = cache.clear(), str(cache.settings.folder)
    session.print_record({"folder": folder, "cleared": cleared.entries, "octets": cleared.octets})
    session.print_line(f"deleted {cleared.entries} {'response' if cleared.entries == 1 else 'responses'}")


def _format_date(when: float | None) -> str | None:
    return None if when is None else datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")


def _format_size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def _format_duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.4g} {unit}"
    return f"{seconds:.4g} seconds"


#: where each shell looks for completion scripts
_PLACES = {
    "bash": "~/.local/share/bash-completion/completions/onym",
    "zsh": "~/.zfunc/_onym",
    "fish": "~/.config/fish/completions/onym.fish",
}


@click.command("completions")
@click.argument("shell", type=click.Choice(sorted(_PLACES)), metavar="SHELL")
@pass_session
def completions_command(session: Session, shell: str) -> None:
    """Print the completion script of a shell.

    SHELL is bash, fish or zsh. The script completes commands, options and the names of your endpoints.

    \b
    Examples:
      onym completions bash > ~/.local/share/bash-completion/completions/onym
      onym completions zsh > ~/.zfunc/_onym        (with fpath+=~/.zfunc before compinit)
      onym completions fish > ~/.config/fish/completions/onym.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click has a class for each of these shells
    from onym.cli._app import app

    script = kind(app, {}, "onym", "_ONYM_COMPLETE").source()
    session.print_line(script)
    session.print_record({"shell": shell, "place": _PLACES[shell], "script": script})
