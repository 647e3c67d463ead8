"""`onym chat`: one prompt, a pipe, or a conversation."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from onym.cli._answers import (
    Writer,
    completion_record,
    cost_record,
    stream_json,
    stream_text,
    tell,
    to_screen,
)
from onym.cli._calls import Call, call_options, connected
from onym.cli._input import stdin_text
from onym.cli._options import json_option, uri_argument
from onym.cli._output import Session, dumps, is_terminal
from onym.errors import UsageError
from onym.llm.types import Finish

if TYPE_CHECKING:
    from onym.llm.client import Client

__all__ = ["command"]


@click.command("chat")
@uri_argument
@click.argument("prompt", nargs=-1)
@click.option("-i", "--interactive", is_flag=True, help="Hold a conversation; keeps a line history.")
@click.option("-s", "--system", metavar="TEXT", help="The system prompt; stronger than the URI's own.")
@click.option(
    "--schema", type=click.Path(dir_okay=False), metavar="FILE", help="A JSON Schema for the answer."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE",
              help="Write the answer to FILE, which appears whole or not at all.")  # fmt: skip
@click.option("--stream/--no-stream", default=None, help="As it comes (default: on a terminal) or whole.")
@click.option("--usage", is_flag=True, help="Say on standard error how many tokens and seconds it took.")
@call_options
@json_option
@click.pass_obj
def command(session: Session, /, prompt: tuple[str, ...], interactive: bool, **given: Any) -> None:
    """Ask the model at URI: an llm:// URI, a name from your configuration, env:NAME for a variable, or -
    for a line of standard input. The prompt is the words after it, then whatever is piped in.

    With --json one object: text, model, finish_reason, usage, ...; with --json --stream one event a line.
    Ctrl-C stops the answer (exit code 130) and leaves no half-written FILE.

    \b
    Examples:
      onym chat llm://embedded/smollm2-135m-instruct "Say hello."
      export OPENAI_API_KEY=...; onym chat llm://openai/gpt-5 "Say hello."
      onym chat llm://localhost:11434/llama3 -i                     (an Ollama on this machine)
      git diff | onym chat fast -s "Write a commit message." -o message.txt
      pass show openai | onym chat --key-stdin llm://openai/gpt-5 "Say hello."
    """
    output, stream, usage = (given.pop(name) for name in ("output", "stream", "usage"))
    overrides = _overrides(given.pop("system"), given.pop("schema"))
    call = Call(**given)
    if interactive and (prompt or output or session.as_json):
        raise UsageError("--interactive takes no prompt, --output or --json", code="usage.command-line")
    text = "" if interactive else _prompt(prompt, call)
    with connected(session, call) as to:
        overrides = {**to.overrides, **overrides}
        if interactive:
            _converse(session, to.client, overrides, usage)
            return
        flowing = _flowing(stream, to.uri.stream, to_terminal=output is None and is_terminal(sys.stdout))
        if stream is False:
            overrides["stream"] = False
        _once(session, to.client, text, overrides, output, flowing=flowing, usage=usage)


def _overrides(system: str | None, schema: str | None) -> dict[str, Any]:
    overrides: dict[str, Any] = {}
    if system is not None:
        overrides["system"] = system
    if schema is not None:
        overrides["schema"] = _read_schema(Path(schema))
    return overrides


def _read_schema(path: Path) -> dict[str, Any]:
    import json

    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", code="usage.schema") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON", code="usage.schema") from error
    if not isinstance(schema, dict):
        raise UsageError(f"{path} holds no JSON object", code="usage.schema")
    return schema


def _prompt(words: tuple[str, ...], call: Call) -> str:
    """The words, then what is piped in, a blank line between them. Raises UsageError for no prompt at all."""
    parts = [" ".join(words)]
    if call.uri != "-" and not call.key_stdin and _piped(only=not words):
        parts.append(stdin_text().strip("\n"))
    text = "\n\n".join(part for part in parts if part)
    if not text:
        raise UsageError(
            "no prompt", code="usage.no-prompt", hint="write it after the URI, pipe it in, or use -i"
        )
    return text


def _piped(*, only: bool) -> bool:
    """Is there text on standard input? With a prompt on the command line a pipe or a file alone counts."""
    if is_terminal(sys.stdin):
        return False
    if only:
        return True
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return True
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _once(
    session: Session,
    client: Client,
    text: str,
    overrides: dict[str, Any],
    output: str | None,
    *,
    flowing: bool,
    usage: bool,
) -> None:
    began = monotonic()
    with ExitStack() as stack:
        write: Writer = to_screen
        if output is not None:
            from onym.cli._atomic import AtomicFile

            write = stack.enter_context(AtomicFile(Path(output))).write
        end = (_streamed if flowing else _whole)(session, client, text, overrides, write)
    if end is not None:
        tell(session, end, began, usage=usage)


def _flowing(wanted: bool | None, asked: bool | None, *, to_terminal: bool) -> bool:
    """`--stream` decides, then the URI's own `stream`, then whether a person is watching."""
    if wanted is not None:
        return wanted
    return to_terminal if asked is None else asked


def _whole(session: Session, client: Client, text: str, overrides: dict[str, Any], write: Writer) -> Any:
    completion = client.chat(text, **overrides)
    if session.as_json:
        price = cost_record(completion.usage, client.endpoint)
        write(dumps({**completion_record(completion), "cost": price}) + "\n")
    else:
        write(completion.text if completion.text.endswith("\n") else completion.text + "\n")
    return completion


def _streamed(session: Session, client: Client, text: str, overrides: dict[str, Any], write: Writer) -> Any:
    ends: list[Finish] = []

    def noting(events: Any) -> Any:
        for event in events:
            if isinstance(event, Finish):
                ends.append(event)
            yield event

    with client.stream(text, **overrides) as events:
        (stream_json if session.as_json else stream_text)(noting(events), write)
    return ends[-1] if ends else None


def _converse(session: Session, client: Client, overrides: dict[str, Any], usage: bool) -> None:
    from onym.cli._interactive import Conversation, history_path, line_history

    with line_history(session, history_path()):
        Conversation(client, session, overrides, usage=usage).run()
