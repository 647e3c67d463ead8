"""`onym config`, `cache`, `completions` and `help`: configuration file, response cache, shell and topics."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from onym.cli import _commands, exit_codes
from onym.cli._output import Session, encode_json, select_fields, to_plain_data
from onym.common.text import escape_unprintable
from onym.errors import ConfigError, UsageError

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


@click.group("config", cls=_commands.OrderedGroup)
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
@_commands.pass_session
def path_command(session: Session, /) -> None:
    """Print the path of the configuration file, even if the file does not exist."""
    from onym.llm.config import default_path

    path = default_path()
    session.print_line(str(path))
    session.print_record({"path": str(path), "exists": os.access(path, os.F_OK)})


@config_command.command("show")
@_commands.pass_session
def show_command(session: Session, /) -> None:
    """Print the configuration, with keys masked."""
    from onym.llm.config import Config

    record = _build_config_record(session, Config.load())
    session.print_record(record)
    if not session.as_json:
        _print_config(session, record)


@config_command.command("check", short_help="Check the configuration file.")
@_commands.pass_session
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
    _commands.exit_with(exit_codes.CHECK_FAILED if wrong else exit_codes.OK)


@config_command.command("init", short_help="Create a configuration file.")
@_commands.pass_session
def init_command(session: Session, /) -> None:
    """Create a configuration file in which every line is a comment. An existing file stays unchanged."""
    from onym.llm.config import VARIABLE, default_path

    path = default_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # only its owner can read the file, because it may contain a key
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        if isinstance(error, FileExistsError) and path.exists():  # and not a file in the place of its folder
            hint = "edit the file, or remove it first"
            raise ConfigError(f"{path} exists already", code="config.exists", hint=hint) from None
        hint = f"name another file with {VARIABLE}"
        message = f"cannot write {path}: {error.strerror}"
        raise UsageError(message, code="usage.output-file", hint=hint) from error
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
@_commands.pass_session
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
    if record["path"] and not record["endpoints"]:
        session.print_note(
            'it has no endpoints; add one under [endpoints]: fast = "llm://openai/gpt-5.4-mini"'
        )
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


@click.group("cache", cls=_commands.OrderedGroup)
def cache_command() -> None:
    """Inspect and clear the response cache.

    Calls with cache=true use it. The cache is in your cache folder; ONYM_CACHE_DIR names another one.
    ONYM_CACHE_SIZE (256MiB) and ONYM_CACHE_AGE (7d) limit its size and the age of responses.

    \b
    Examples:
      onym chat 'llm://openai/gpt-5.4-mini?cache=true' "Say hello."
      onym cache stats
      onym cache clear
    """


@cache_command.command("stats")
@_commands.pass_session
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
@_commands.yes_option
@_commands.pass_session
def clear_command(session: Session, /, yes: bool) -> None:
    """Delete every cached response. Running processes may keep using the cache.

    \b
    Example:
      onym cache clear --yes
    """
    from onym.llm.cache import default_cache

    cache = default_cache()
    count = cache.contents().entries
    if count:
        _commands.confirm_action(
            session, f"Delete {count} cached responses in {cache.settings.folder}?", yes=yes
        )
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


@_commands.make_command("completions")
@click.argument("shell", type=click.Choice(sorted(_PLACES)), metavar="SHELL")
@_commands.pass_session
def completions_command(session: Session, shell: str) -> None:
    """Print the completion script of a shell.

    SHELL is bash, fish or zsh. The script completes commands, options and the names of your endpoints.

    \b
    Examples:
      onym completions bash > ~/.local/share/bash-completion/completions/onym
      onym completions zsh > ~/.zfunc/_onym     (fpath+=~/.zfunc before compinit)
      onym completions fish > ~/.config/fish/completions/onym.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - click has a class for each of these shells
    from onym.cli._app import app

    script = kind(app, {}, "onym", "_ONYM_COMPLETE").source()
    session.print_line(script)
    session.print_record({"shell": shell, "place": _PLACES[shell], "script": script})


_URIS = """\
A URI is an llm:// or ai:// URI, the name of an endpoint in your configuration (onym config init), env:NAME
for the value of a variable, or - for a line of standard input.

Keep keys out of the URI. Set the provider's variable (OPENAI_API_KEY, ...), name another variable with
?auth=env:NAME, or pipe the key to --key-stdin. `onym explain URI` shows which key would be used.

To use Ollama or another server on this computer, type its URI (llm://localhost:11434/llama3). A URI that
comes from a file, a variable or a pipe needs --policy local or ONYM_ALLOW_LOOPBACK=1.

Results go to standard output, notes and errors to standard error. With --json, standard output contains only
JSON, and an error is {"error": {...}}. Keys are masked everywhere."""

#: words that mean the same in every command
_WORDS = (
    ("--policy NAME", "Hosts that may be reached: trusted, local (this computer too) or untrusted."),
    ("--ca FILE", "A certificate authority (PEM) to trust besides the system's."),
    ("--timeout DURATION", "Timeout of each request. A duration has a unit: 500ms, 30s, 2m, 12h, 90d."),
    ("--wait DURATION", "Longest time to wait for a result."),
    ("-d, --data DATA", "The body: JSON text, @FILE for a file, or - for standard input."),
    ("-o, --output FILE", "Write the result to FILE, which is replaced when the result is complete."),
    ("-r, --registry NAME", "The registry: uri-schemes, or another one."),
    ("--profile NAME", "A profile of the configuration file."),
    ("--config FILE", "The settings file of a server (TOML)."),
    ("--key-stdin", "Read the API key from standard input."),
    ("--dry-run", "Show what would change, and change nothing."),
    ("-y, --yes", "Do not ask for confirmation before something that cannot be undone."),
)
_TOPICS = {
    "commands": "all commands",
    "options": "the options of every command, and options with one meaning everywhere",
    "uris": "URIs, endpoints and keys",
    "exit-codes": "the exit codes",
    "json-schema": "the JSON Schema of a command's --json output: onym help json-schema COMMAND",
}


def _find_command(words: Sequence[str]) -> tuple[click.Command, click.Context]:
    """Return the command of these words, and its context. Raises UsageError."""
    from onym.cli._app import app

    command: click.Command = app
    context: click.Context = app.context_class(app, info_name="onym", **app.context_settings)
    for word in words:
        names = command.list_commands(context) if isinstance(command, click.Group) else []
        if word not in names or not isinstance(command, click.Group):
            is_first = isinstance(command, click.Group) and command is app
            raise UsageError(
                f'"{word}" is not a {"topic or a command of onym" if is_first else "command"}',
                code="usage.command-line",
                hint=_commands.suggest_command(
                    context.command_path, word, [*names, *(_TOPICS if is_first else ())]
                ),
            )
        found = command.get_command(click.Context(command), word)
        assert found is not None  # noqa: S101 - its name is in the list
        command, context = found, command.context_class(found, info_name=word, parent=context)
    return command, context


@_commands.make_command("help")
@click.argument("words", nargs=-1, metavar="[TOPIC|COMMAND]...")
@_commands.pass_session
def help_command(session: Session, /, words: Sequence[str]) -> None:
    """Explain a command or a topic.

    \b
    Topics:
      commands     all commands
      options      the options of every command
      uris         URIs, endpoints and keys
      exit-codes   the exit codes
      json-schema  the JSON Schema of a command's --json output

    \b
    Examples:
      onym help exit-codes
      onym help ai invoke
      onym help json-schema check
    """
    topic = words[0] if words else ""
    if topic == "json-schema":
        _print_schema(session, words[1:])
        return
    if not topic:
        text = _find_command(["help"])[0].get_help(_find_command(["help"])[1])
    elif topic in _TOPICS and len(words) == 1:
        text = _format_topic(topic)
    else:
        command, context = _find_command(words)
        text = command.get_help(context)
    session.print_line(text)
    session.print_record({"topic": " ".join(words), "text": text})


def _format_topic(topic: str) -> str:
    """Return the text of a topic, at most 80 columns wide."""
    from onym.cli._app import GROUPS

    formatter = _find_command(())[1].make_formatter()
    if topic == "uris":
        formatter.write_text(_URIS)
    elif topic == "exit-codes":
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in exit_codes.MEANINGS.items()])
    elif topic == "options":
        with formatter.section("Options of every command, before and after its name"):
            formatter.write_dl(
                [(", ".join(option.opts), option.help or "") for option in _commands.SHARED_OPTIONS]
                + [("-h, --help", "Show the help of the command.")]
            )
        with formatter.section("Options with one meaning everywhere"):
            formatter.write_dl(_WORDS)
    else:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(_list_lines(commands))
    return formatter.getvalue().strip("\n")


def _list_lines(commands: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each command, and the commands below it, with its first line."""
    for name, line in commands.items():
        yield name, line
        command, context = _find_command([name])
        if isinstance(command, click.Group):
            for word in command.list_commands(context):
                below = command.get_command(context, word)
                yield f"  {name} {word}", "" if below is None else below.get_short_help_str(80)


def load_schemas() -> dict[str, Any]:
    """Return the JSON Schemas of the commands' `--json` output, by the command's words ("ai invoke")."""
    import json
    from importlib.resources import files

    schemas: dict[str, Any] = json.loads(
        files("onym.cli").joinpath("json_output.json").read_text(encoding="utf-8")
    )
    return schemas


def make_schema(command: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a command's output, errors included. Raises UsageError."""
    schemas = load_schemas()
    commands: dict[str, Any] = schemas["commands"]
    if command not in commands:
        from difflib import get_close_matches

        close = get_close_matches(command, commands, n=1)
        hint = f"did you mean onym help json-schema {close[0]}?" if close else "run onym help json-schema"
        raise UsageError(f'"{command}" is not a command with --json', code="usage.command-line", hint=hint)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"onym {command} --json",
        "anyOf": [commands[command], {"$ref": "#/$defs/error"}],
        "$defs": schemas["$defs"],
    }


def _print_schema(session: Session, words: Sequence[str]) -> None:
    """Print the schema of a command, or the list of commands that have one."""
    if words:
        sys.stdout.write(encode_json(make_schema(" ".join(words)), indent=2) + "\n")
        return
    names = sorted(load_schemas()["commands"])
    session.print_record({"commands": names})
    session.print_table([(f"onym help json-schema {name}",) for name in names])
