"""`onym config`: where the configuration file is, what it says, whether it is right, and a first one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onym.cli import exit_codes
from onym.cli._options import json_option
from onym.cli._output import Session, dumps, plain
from onym.cli._text import printable
from onym.errors import ConfigError

if TYPE_CHECKING:
    from onym.llm.config import Config, Finding

__all__ = ["TEMPLATE", "command"]

TEMPLATE = """\
# The configuration of onym: every line here is optional. `onym config check` reads it over.

# Names for URIs: `onym chat fast "Hello"`. A key is best kept out of them: the provider's own variable
# (OPENAI_API_KEY, ...) is found by itself, ?auth= refers to any other place.
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

# Where URIs may lead: "trusted" (default), "local" (this machine too) or "untrusted".
# [policy]
# preset = "local"
# allow_hosts = ["api.openai.com", "localhost"]

# A server of your own. It is taken to speak the OpenAI chat format, unless dialect says otherwise
# (anthropic_messages, gemini, ollama, ...).
# [providers.mycorp]
# hosts = ["llm.mycorp.example"]
# dialect = "openai_chat"
# base_path = "/v1"
# key_variables = ["MYCORP_KEY"]
"""


@click.group("config")
def command() -> None:
    """Find, show, check or begin the configuration file.

    It holds names for URIs, profiles, the policy, and servers of your own. ONYM_CONFIG names another file.

    \b
    Examples:
      onym config init
      onym config show
      onym config check
    """


@command.command("path", short_help="Print where the configuration is read from.")
@json_option
@click.pass_obj
def path(session: Session, /) -> None:
    """Print where the configuration is read from, whether or not there is such a file."""
    from onym.llm.config import default_path

    found = default_path()
    session.say(str(found))
    session.record({"path": str(found), "exists": found.exists()})


@command.command("show")
@json_option
@click.pass_obj
def show(session: Session, /) -> None:
    """Print what the configuration says, keys masked."""
    from onym.llm.config import Config

    record = _record(session, Config.load())
    session.record(record)
    if not session.as_json:
        _draw(session, record)


@command.command("check", short_help="Read the configuration over.")
@json_option
@click.pass_context
def check(ctx: click.Context, /) -> None:
    """Read the configuration over: every endpoint, profile and rule. Exit code 1 when any has an error."""
    from onym.llm.config import Config

    session = ctx.find_object(Session)
    assert session is not None  # noqa: S101 - the group always makes one
    config = Config.load()
    findings = config.check()
    wrong = any(each.severity == "error" for each in findings)
    session.record(
        {"path": _path(config), "ok": not wrong, "findings": [_finding(session, each) for each in findings]}
    )
    for each in findings:
        message = printable(session.masked(each.message))
        session.say(f"{session.paint(each.severity, each.severity)}: {printable(each.where)}: {message}")
    if not findings:
        session.say(f"{session.paint('ok', 'good')}  {_path(config) or 'there is no configuration file'}")
    ctx.exit(exit_codes.CHECK_FAILED if wrong else exit_codes.OK)


@command.command("init", short_help="Write a first configuration file.")
@json_option
@click.pass_obj
def init(session: Session, /) -> None:
    """Write a first configuration file, everything in it commented out. Never touches one that is there."""
    from onym.llm.config import default_path

    found = default_path()
    try:
        found.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _new_file(found) as out:
            out.write(TEMPLATE)
    except FileExistsError:
        raise ConfigError(f"{found} is there already", code="config.exists", hint="edit it") from None
    session.say(f"wrote {found}")
    session.record({"path": str(found)})


def _new_file(path: Path) -> Any:
    """A file that nobody else may read: it may come to hold a key."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")


def _path(config: Config) -> str | None:
    return None if config.path is None else str(config.path)


def _finding(session: Session, found: Finding) -> dict[str, str]:
    return {"severity": found.severity, "where": found.where, "message": session.masked(found.message)}


def _record(session: Session, config: Config) -> dict[str, Any]:
    from onym.llm.providers import ProviderTable

    built_in = set(ProviderTable.builtin().names())
    return {
        "path": _path(config),
        "endpoints": {name: session.masked(text) for name, text in config.endpoints.items()},
        "profiles": {name: plain(values) for name, values in config.profiles.items()},
        "policy": None if config.policy is None else _policy(config.policy),
        "providers": [row.as_dict() for row in config.providers if row.name not in built_in],
    }


def _policy(policy: Any) -> dict[str, Any]:
    from dataclasses import fields

    values = {each.name: getattr(policy, each.name) for each in fields(policy) if each.init}
    return {
        name: sorted(value) if isinstance(value, (frozenset, tuple)) else value
        for name, value in values.items()
    }


def _draw(session: Session, record: dict[str, Any]) -> None:
    session.say(record["path"] or "there is no configuration file; onym config init writes one")
    for title in ("endpoints", "policy", "profiles"):
        values = record[title]
        if values:
            session.say("\n" + session.paint(title, "name"))
            rows = [
                (name, value if isinstance(value, str) else dumps(value)) for name, value in values.items()
            ]
            session.table(rows, indent="  ", styles=("dim",))
    if record["providers"]:
        session.say("\n" + session.paint("providers", "name"))
        rows = [(row["name"], ", ".join(row["hosts"])) for row in record["providers"]]
        session.table(rows, indent="  ", styles=("dim",))
