"""`onym config`, `onym cache` and `onym completions`: configuration file, response cache and shell."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from onym.cli import exit_codes
from onym.cli._input import exit_with, pass_session
from onym.cli._output import Session, encode_json, to_plain_data
from onym.common.text import escape_unprintable
from onym.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from onym.llm.cache import Contents, ResponseCache
    from onym.llm.config import Config, Finding

TEMPLATE = """\
# The configuration of Onym. Every line is optional. `onym config check` checks this file.

# Names for URIs: `onym chat fast "Hello"`. Keep keys out of them: Onym reads the provider's own variable
# (OPENAI_API_KEY, ...), and ?auth= refers to any other place.
[endpoints]
# fast = "llm://openai/gpt-5-mini?max_tokens=500"
# careful = "llm://anthropic/claude-sonnet-4-5?max_tokens=2000"
# team = "llm://llm.example.com/qwen3?auth=env:TEAM_KEY"
# here = "llm://embedded/smollm2-135m-instruct"
# ollama = "llm://localhost:11434/llama3"        # needs preset = "local" below, or --policy local

# Parameters by name, chosen by a URI's fragment: llm://openai/gpt-5#code-review
# [profiles.code-review]
# temp = 0.2
# system = "You review code. Be brief."

# Hosts that URIs may reach: "trusted" (default), "local" (this computer too) or "untrusted".
# [policy]
# preset = "local"
# allow_hosts = ["api.openai.com", "localhost"]

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

    It contains named endpoints, profiles, the policy and your own providers. ONYM_CONFIG names another file.

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

    found = default_path()
    session.print_line(str(found))
    session.print_record({"path": str(found), "exists": found.exists()})


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
    session.print_record(
        {
            "path": _get_path_text(config),
            "ok": not wrong,
            "findings": [_build_finding_record(session, finding) for finding in findings],
        }
    )
    for finding in findings:
        message = escape_unprintable(session.mask(finding.message))
        session.print_line(
            f"{session.paint(finding.severity, finding.severity)}: "
            f"{escape_unprintable(finding.where)}: {message}"
        )
    if not findings:
        session.print_line(
            f"{session.paint('ok', 'good')}  {_get_path_text(config) or 'there is no configuration file'}"
        )
    exit_with(exit_codes.CHECK_FAILED if wrong else exit_codes.OK)


@config_command.command("init", short_help="Create a configuration file.")
@pass_session
def init_command(session: Session, /) -> None:
    """Create a configuration file in which every line is a comment. An existing file stays unchanged."""
    from onym.llm.config import default_path

    found = default_path()
    try:
        found.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _create_private_file(found) as out:
            out.write(TEMPLATE)
    except FileExistsError:
        raise ConfigError(
            f"{found} exists already", code="config.exists", hint="edit the file, or remove it first"
        ) from None
    session.print_line(f"wrote {found}")
    session.print_record({"path": str(found)})


def _create_private_file(path: Path) -> Any:
    """Create a file that only its owner can read, because it may contain a key."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")


def _get_path_text(config: Config) -> str | None:
    return None if config.path is None else str(config.path)


def _build_finding_record(session: Session, found: Finding) -> dict[str, str]:
    return {"severity": found.severity, "where": found.where, "message": session.mask(found.message)}


def _build_config_record(session: Session, config: Config) -> dict[str, Any]:
    from onym.llm.providers import ProviderTable

    built_in = set(ProviderTable.builtin().names())
    return {
        "path": _get_path_text(config),
        "endpoints": {name: session.mask(text) for name, text in config.endpoints.items()},
        "profiles": {name: to_plain_data(values) for name, values in config.profiles.items()},
        "policy": None if config.policy is None else _build_policy_record(config.policy),
        "providers": [row.as_dict() for row in config.providers if row.name not in built_in],
    }


def _build_policy_record(policy: Any) -> dict[str, Any]:
    from dataclasses import fields

    values = {field.name: getattr(policy, field.name) for field in fields(policy) if field.init}
    return {
        name: sorted(value) if isinstance(value, (frozenset, tuple)) else value
        for name, value in values.items()
    }


def _print_config(session: Session, record: dict[str, Any]) -> None:
    session.print_line(record["path"] or "there is no configuration file; run onym config init to create one")
    for title in ("endpoints", "policy", "profiles"):
        values = record[title]
        if values:
            session.print_line("\n" + session.paint(title, "name"))
            rows = [
                (name, value if isinstance(value, str) else encode_json(value))
                for name, value in values.items()
            ]
            session.print_table(rows, indent="  ", styles=("dim",))
    if record["providers"]:
        session.print_line("\n" + session.paint("providers", "name"))
        rows = [(row["name"], ", ".join(row["hosts"])) for row in record["providers"]]
        session.print_table(rows, indent="  ", styles=("dim",))


@click.group("cache")
def cache_command() -> None:
    """Inspect and clear the response cache, which calls with cache=true use.

    The cache is in your cache folder; ONYM_CACHE_DIR names another one. ONYM_CACHE_SIZE (256MiB) and
    ONYM_CACHE_AGE (7d) limit its size and the age of responses.

    \b
    Examples:
      onym chat 'llm://openai/gpt-5-mini?cache=true' "Say hello."
      onym cache stats
      onym cache clear
    """


@cache_command.command("stats")
@pass_session
def stats_command(session: Session) -> None:
    """Show the path, the size and the limits of the cache."""
    cache = _open_cache()
    found = cache.contents()
    session.print_record(_build_cache_record(cache, found))
    session.print_table(
        [
            ("folder", str(cache.settings.folder)),
            ("answers", str(found.entries)),
            ("size", f"{_format_size(found.octets)} of {_format_size(cache.settings.size)}"),
            ("expires after", _format_duration(cache.settings.age)),
            ("oldest", _format_date(found.oldest) or "-"),
            ("newest", _format_date(found.newest) or "-"),
        ],
        styles=("dim",),
    )


@cache_command.command("clear")
@pass_session
def clear_command(session: Session) -> None:
    """Delete every cached response. Running processes may keep using the cache."""
    cache = _open_cache()
    found = cache.clear()
    session.print_record(
        {"folder": str(cache.settings.folder), "cleared": found.entries, "octets": found.octets}
    )
    session.print_line(f"deleted {found.entries} {'response' if found.entries == 1 else 'responses'}")


def _open_cache() -> ResponseCache:
    from onym.llm.cache import default_cache

    return default_cache()


def _build_cache_record(cache: ResponseCache, found: Contents) -> dict[str, Any]:
    return {
        "folder": str(cache.settings.folder),
        "answers": found.entries,
        "octets": found.octets,
        "most_octets": cache.settings.size,
        "most_seconds": cache.settings.age,
        "oldest": _format_date(found.oldest),
        "newest": _format_date(found.newest),
    }


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
    if kind is None:
        raise UsageError(f"there is no completion script for {shell}")
    from onym.cli._app import app

    script = kind(app, {}, "onym", "_ONYM_COMPLETE").source()
    session.print_line(script)
    session.print_record({"shell": shell, "place": _PLACES[shell], "script": script})
